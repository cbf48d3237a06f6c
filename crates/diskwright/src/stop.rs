//! Ending long work on Ctrl-C, or when it is asked to terminate, so that it can clean up or report.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::signals::{STATUS_BASE, heeded};
use crate::{Error, Result};

/// A flag that the first SIGINT, SIGTERM or SIGHUP of this process sets from now on, for a check's
/// [`Observer`](crate::check::Observer) or a workload's [`Context`](::workload::jobs::Context). The next such signal
/// ends the process at once, with status 130, 143 or 129. A process that was started to ignore SIGHUP still does.
///
/// For programs: it changes what signals do to the whole process, for good.
///
/// # Errors
/// If the signals cannot be handled.
pub fn stop_on_signals() -> Result<&'static AtomicBool> {
    static STOP: Mutex<Option<&'static Arc<AtomicBool>>> = Mutex::new(None);
    let mut first = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = *first {
        return Ok(stop);
    }
    // It is for as long as the process runs, as the handlers are.
    let stop: &'static _ = Box::leak(Box::new(Arc::new(AtomicBool::new(false))));
    handle(stop).map_err(|e| Error::host("handle", "signals", e))?;
    *first = Some(stop);
    Ok(stop)
}

fn handle(stop: &Arc<AtomicBool>) -> io::Result<()> {
    let hangup = heeded().find(|&signal| signal == SIGHUP);
    for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
        // In this order: the first signal finds the flag not set yet.
        flag::register_conditional_shutdown(signal, STATUS_BASE + signal, Arc::clone(stop))?;
        flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
}
