//! Behaviour of this process on interrupts on hosts other than Linux: Ctrl-C, and on Windows closing the console.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::{Error, Result};

/// Exit status of an interrupted program.
const STATUS: i32 = 130;

/// True if temporary files are removed before the process ends.
static CLEANS_UP: AtomicBool = AtomicBool::new(false);

/// Flag set by the first interrupt, if requested.
static STOP: OnceLock<AtomicBool> = OnceLock::new();

/// Makes an interrupt end this process only after the temporary files of [`build`](mod@crate::build) and
/// [`extract`](mod@crate::extract) are removed.
///
/// For programs only: it permanently changes the interrupt handling of the whole process.
///
/// # Errors
/// If the handler cannot be installed.
pub fn clean_up_on_signals() -> Result<()> {
    CLEANS_UP.store(true, Ordering::Relaxed);
    watch()
}

/// Returns a flag that is set by the next interrupt of this process, for a check's [`Observer`](crate::check::Observer)
/// or a workload. A further interrupt ends the process immediately, with
/// status 130.
///
/// For programs only: it permanently changes the interrupt handling of the whole process.
///
/// # Errors
/// If the handler cannot be installed.
pub fn stop_on_signals() -> Result<&'static AtomicBool> {
    let stop = STOP.get_or_init(|| AtomicBool::new(false));
    watch()?;
    Ok(stop)
}

/// Installs the interrupt handler, which runs on a separate thread.
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
    // Held until the end, so that no new temporary file is created.
    let names = TemporaryNames::hold();
    names.remove_all();
    std::process::exit(STATUS);
}

/// Temporary names of this process. While this lock is held, an interrupt does not end the process.
#[derive(Debug)]
pub(crate) struct TemporaryNames(Vec<PathBuf>);

impl TemporaryNames {
    pub(crate) fn hold() -> MutexGuard<'static, Self> {
        static NAMES: Mutex<TemporaryNames> = Mutex::new(TemporaryNames(Vec::new()));
        NAMES.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the name of a new file.
    pub(crate) fn add(&mut self, path: &Path) -> TemporaryName {
        self.0.push(path.to_owned());
        TemporaryName(path.to_owned())
    }

    fn remove_all(&self) {
        // Failure to remove the file is ignored.
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// Temporary name, which is removed from the list on drop.
#[derive(Debug)]
pub(crate) struct TemporaryName(PathBuf);

impl Drop for TemporaryName {
    fn drop(&mut self) {
        TemporaryNames::hold().0.retain(|kept| *kept != self.0);
    }
}
