//! Behaviour of this process on SIGINT, SIGTERM and SIGHUP.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::{AtFlags, unlinkat};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use crate::{Error, Result};

/// Signals that request termination.
pub(crate) const ENDING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Shells report this plus the signal number as the status of a program terminated by a signal.
pub(crate) const STATUS_BASE: i32 = 128;

/// Passes these signals to `each` on a separate thread, for the rest of the process.
///
/// # Errors
/// If the signal handlers cannot be installed.
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

/// Makes SIGINT, SIGTERM and SIGHUP terminate this process only after the temporary files of
/// [`build`](mod@crate::build) and [`extract`](mod@crate::extract) are removed. Signals that were ignored at process
/// start remain ignored.
///
/// Only file systems without anonymous files (`O_TMPFILE`) need temporary names for more than a moment. Elsewhere
/// unfinished files always disappear with the process.
///
/// For programs only: it permanently changes the signal handling of the whole process.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub fn clean_up_on_signals() -> Result<()> {
    watch(heeded(), |signal| {
        // Held until the end, so that no new temporary file is created.
        let names = TemporaryNames::hold();
        names.remove_all();
        let _ = low_level::emulate_default_handler(signal);
        low_level::exit(STATUS_BASE + signal);
    })
}

/// Returns a flag that is set by the next SIGINT, SIGTERM or SIGHUP of this process, for a check's
/// [`Observer`](crate::check::Observer) or a workload. A further signal ends the process immediately, with status 130,
/// 143 or 129. SIGHUP remains ignored if it was ignored at process start.
///
/// For programs only: it permanently changes the signal handling of the whole process.
///
/// # Errors
/// If the signal handlers cannot be installed.
pub fn stop_on_signals() -> Result<&'static AtomicBool> {
    static STOP: Mutex<Option<&'static Arc<AtomicBool>>> = Mutex::new(None);
    let mut first = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = *first {
        return Ok(stop);
    }
    // Lives as long as the process, like the handlers.
    let stop: &'static _ = Box::leak(Box::new(Arc::new(AtomicBool::new(false))));
    set_on_signals(stop).map_err(|e| Error::host("handle", "signals", e))?;
    *first = Some(stop);
    Ok(stop)
}

fn set_on_signals(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let hangup = heeded().find(|&signal| signal == SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        // The order matters: on the first signal the flag is not set yet when the shutdown handler runs.
        flag::register_conditional_shutdown(signal, STATUS_BASE + signal, Arc::clone(stop))?;
        flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
}

/// Returns the termination signals that were not ignored at process start (for example by `nohup`).
pub(crate) fn heeded() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // Bit 0 is signal 1.
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ENDING.into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// Temporary name of an unfinished file.
#[derive(Clone, Debug)]
pub(crate) struct TemporaryName {
    pub(crate) dir: Arc<OwnedFd>,
    pub(crate) name: OsString,
}

impl TemporaryName {
    pub(crate) fn remove(&self) {
        // Failure to remove the file is ignored.
        let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
    }
}

/// Temporary names of this process; global, like signal handlers.
///
/// While this lock is held, [`clean_up_on_signals`] does not end the process. A file and its entry are therefore
/// created and removed atomically, and short-lived names need no entry.
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

    /// Removes a name that no longer refers to its file.
    pub(crate) fn forget(&mut self, gone: &TemporaryName) {
        self.0.retain(|kept| !(Arc::ptr_eq(&kept.dir, &gone.dir) && kept.name == gone.name));
    }

    fn remove_all(&self) {
        self.0.iter().for_each(TemporaryName::remove);
    }
}
