//! The one runtime of what is asynchronous.

use std::future::Future;
use std::io;
use std::sync::{OnceLock, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};

/// Requests wait far more than they compute.
const WORKERS: usize = 2;

/// Threads that must be available before the runtime starts: its workers, and one that looks up names of hosts. The
/// runtime panics if it gets none.
const THREADS_MIN: usize = WORKERS + 1;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Starts the runtime, unless it runs. All that leads to [`handle`] calls this first.
///
/// # Errors
/// If the system provides no threads or descriptors.
pub fn start() -> io::Result<()> {
    if RUNTIME.get().is_some() {
        return Ok(());
    }
    check_threads(THREADS_MIN)?;
    let built = build()?;
    // Another thread may have started one: then this one ends unused.
    if let Err(surplus) = RUNTIME.set(built) {
        surplus.shutdown_background();
    }
    Ok(())
}

fn build() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(WORKERS).thread_name("places").enable_all().build()
}

/// Starts `count` threads that exist together, and ends them.
fn check_threads(count: usize) -> io::Result<()> {
    let mut started = Vec::new();
    for _ in 0..count {
        let (end, ended) = mpsc::channel::<()>();
        let wait = move || {
            let _ = ended.recv();
        };
        started.push((end, thread::Builder::new().spawn(wait)?));
    }
    for (end, thread) in started {
        drop(end);
        // The thread does nothing that could fail.
        let _ = thread.join();
    }
    Ok(())
}

/// The runtime's handle, for libraries that start tasks of their own.
///
/// # Panics
/// If the runtime was not started, and the system provides no threads.
pub fn handle() -> Handle {
    RUNTIME.get_or_init(|| build().expect("threads for requests")).handle().clone()
}

/// Waits for `future` on the runtime. Not to be called from one of its tasks.
///
/// # Panics
/// In a task of a runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    handle().block_on(future)
}
