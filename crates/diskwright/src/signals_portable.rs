//! What this process does when it is interrupted, where Linux's signals are not: Ctrl-C, and on Windows the end of its
//! console.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Error, Result};

/// The status of a program that was interrupted.
const STATUS: i32 = 130;

/// Whether temporary files are to be removed before the process ends.
static CLEANS_UP: AtomicBool = AtomicBool::new(false);

/// The flag that the first interrupt sets, once somebody asked for it.
static STOP: OnceLock<AtomicBool> = OnceLock::new();

/// Lets an interrupt end this process, but not before the files that [`build`](mod@crate::build) and
/// [`extract`](mod@crate::extract) have begun under temporary names are removed.
///
/// For programs: it changes what interrupts do to the whole process, for good.
///
/// # Errors
/// If interrupts cannot be handled.
pub fn clean_up_on_signals() -> Result<()> {
    CLEANS_UP.store(true, Ordering::Relaxed);
    watch()
}

/// A flag that the first interrupt of this process sets from now on, for a check's
/// [`Observer`](crate::check::Observer) or a workload's [`Context`](::workload::jobs::Context). The next one ends the
/// process at once, with status 130.
///
/// For programs: it changes what interrupts do to the whole process, for good.
///
/// # Errors
/// If interrupts cannot be handled.
pub fn stop_on_signals() -> Result<&'static AtomicBool> {
    let stop = STOP.get_or_init(|| AtomicBool::new(false));
    watch()?;
    Ok(stop)
}

/// Handles interrupts from now on, on a thread of their own.
fn watch() -> Result<()> {
    static WATCHES: Mutex<bool> = Mutex::new(false);
    let mut watches = WATCHES.lock().unwrap_or_else(PoisonError::into_inner);
    if !*watches {
        ctrlc::set_handler(interrupted)
            .map_err(|e| Error::host("handle", "interrupts", io::Error::other(e)))?;
        *watches = true;
    }
    Ok(())
}

fn interrupted() {
    let is_first = STOP.get().is_some_and(|stop| !stop.swap(true, Ordering::Relaxed));
    if is_first && !CLEANS_UP.load(Ordering::Relaxed) {
        return;
    }
    // Held to the end: nobody makes another one.
    let names = TemporaryNames::hold();
    names.remove_all();
    std::process::exit(STATUS);
}

/// The temporary names of this process. While they are held, an interrupt does not end the process.
#[derive(Debug)]
pub(crate) struct TemporaryNames(Vec<PathBuf>);

impl TemporaryNames {
    pub(crate) fn hold() -> MutexGuard<'static, Self> {
        static NAMES: Mutex<TemporaryNames> = Mutex::new(TemporaryNames(Vec::new()));
        NAMES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a name that a file has just got.
    pub(crate) fn add(&mut self, path: &Path) -> TemporaryName {
        self.0.push(path.to_owned());
        TemporaryName(path.to_owned())
    }

    fn remove_all(&self) {
        // Nothing more can be done about a file that will not go.
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// A temporary name, which leads to its file no more when this is dropped.
#[derive(Debug)]
pub(crate) struct TemporaryName(PathBuf);

impl Drop for TemporaryName {
    fn drop(&mut self) {
        TemporaryNames::hold().0.retain(|kept| *kept != self.0);
    }
}
