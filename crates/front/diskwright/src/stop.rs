//! Cancellation of long operations on termination signals, so that they can clean up or report.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::signals::{STATUS_BASE, heeded};
use crate::{Error, Result};

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
    handle(stop).map_err(|e| Error::host("handle", "signals", e))?;
    *first = Some(stop);
    Ok(stop)
}

fn handle(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let hangup = heeded().find(|&signal| signal == SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        // The order matters: on the first signal the flag is not set yet when the shutdown handler runs.
        flag::register_conditional_shutdown(signal, STATUS_BASE + signal, Arc::clone(stop))?;
        flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
}
