//! What this process does when it is asked to end, by SIGINT, SIGTERM or SIGHUP.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, unlinkat};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::{Error, Result};

/// The signals that ask a program to end.
pub(crate) const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// What shells take for the status of a program that a signal ended is this and the signal's number.
pub(crate) const STATUS_BASE: i32 = 128;

/// Hands each of these signals to `each` from now on, on a thread of its own, for as long as the process
/// runs.
///
/// # Errors
/// If the signals cannot be handled.
pub(crate) fn watch(
    signals: impl IntoIterator<Item = i32>,
    mut each: impl FnMut(i32) + Send + 'static,
) -> Result<()> {
    let failed = |e: io::Error| Error::host("handle", "signals", e);
    let mut signals = Signals::new(signals).map_err(failed)?;
    let wait = move || signals.forever().for_each(&mut each);
    thread::Builder::new().name("signals".into()).spawn(wait).map_err(failed)?;
    Ok(())
}

/// Lets SIGINT, SIGTERM and SIGHUP end this process as they would without it, but not before the files that
/// [`build`](mod@crate::build) and [`extract`](mod@crate::extract) have begun under temporary names are
/// removed. A signal that the process was started to ignore is ignored still.
///
/// Only file systems without unnamed files (`O_TMPFILE`) need such names for longer than a moment; elsewhere
/// what is unfinished goes with the process, whatever ends it.
///
/// For programs: it changes what signals do to the whole process, for good.
///
/// # Errors
/// If the signals cannot be handled.
pub fn clean_up_on_signals() -> Result<()> {
    watch(heeded(), |signal| {
        // Held to the end: nobody makes another one.
        let names = TemporaryNames::hold();
        names.remove_all();
        let _ = low_level::emulate_default_handler(signal);
        low_level::exit(STATUS_BASE + signal);
    })
}

/// The signals that ask this process to end, but for those that it was started to ignore (by `nohup`, for
/// example).
pub(crate) fn heeded() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Bit 0 is signal 1.
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ENDING.into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// A name that a file has until it is finished.
#[derive(Clone, Debug)]
pub(crate) struct TemporaryName {
    pub(crate) dir: Arc<OwnedFd>,
    pub(crate) name: OsString,
}

impl TemporaryName {
    pub(crate) fn remove(&self) {
        // Nothing more can be done about a file that will not go.
        let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
    }
}

/// The temporary names of this process. Signals are the whole process's, and so are these.
///
/// While they are held, [`clean_up_on_signals`] does not end the process. So a file and its entry here come
/// and go as one, and a name that is there for a moment only needs no entry.
#[derive(Debug)]
pub(crate) struct TemporaryNames(Vec<TemporaryName>);

impl TemporaryNames {
    pub(crate) fn hold() -> MutexGuard<'static, Self> {
        static NAMES: Mutex<TemporaryNames> = Mutex::new(TemporaryNames(Vec::new()));
        NAMES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&mut self, name: TemporaryName) {
        self.0.push(name);
    }

    /// Forgets a name that leads to its file no more.
    pub(crate) fn forget(&mut self, gone: &TemporaryName) {
        self.0.retain(|kept| !(Arc::ptr_eq(&kept.dir, &gone.dir) && kept.name == gone.name));
    }

    fn remove_all(&self) {
        self.0.iter().for_each(TemporaryName::remove);
    }
}
