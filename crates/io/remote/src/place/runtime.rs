//! The runtime for asynchronous work.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{OnceLock, mpsc};
use std::thread;

use tokio::runtime::{Builder, Handle, Runtime};

/// Number of worker threads. Requests wait far more than they compute.
const WORKERS: usize = 2;

/// Number of threads that must be available before the runtime starts: its workers, and one for name resolution. The
/// runtime would panic without them.
const THREADS_MIN: usize = WORKERS + 1;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

thread_local! {
    /// Runtime of a simulation in this thread.
    static SIMULATED: RefCell<Option<Rc<Runtime>>> = const { RefCell::new(None) };
}

/// Starts the runtime, unless it is running. Must be called before anything that uses [`handle`].
///
/// # Errors
/// If the system provides no threads or descriptors.
pub(crate) fn start() -> io::Result<()> {
    if RUNTIME.get().is_some() {
        return Ok(());
    }
    check_threads(THREADS_MIN)?;
    let built = build()?;
    // Another thread started one concurrently: discard this one.
    if let Err(surplus) = RUNTIME.set(built) {
        surplus.shutdown_background();
    }
    Ok(())
}

fn build() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(WORKERS).thread_name("places").enable_all().build()
}

/// Checks that `count` threads can exist at the same time.
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

/// Returns the runtime's handle, for libraries that start tasks.
///
/// # Panics
/// If the runtime was not started, and the system provides no threads.
pub(crate) fn handle() -> Handle {
    if let Some(runtime) = simulated() {
        return runtime.handle().clone();
    }
    RUNTIME.get_or_init(|| build().expect("threads for requests")).handle().clone()
}

/// Runs `future` to completion. Must not be called from a task of the runtime.
///
/// # Panics
/// In a task of a runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    match simulated() {
        Some(runtime) => runtime.block_on(future),
        None => handle().block_on(future),
    }
}

/// Runs `work` with all asynchronous work of the calling thread in that thread. So the order of tasks depends only on
/// `work`, the requests it makes, and timers. For tests.
///
/// # Panics
/// If the system provides no descriptors.
#[doc(hidden)]
pub fn simulate<T>(work: impl FnOnce() -> T) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    SIMULATED.set(Some(Rc::new(runtime)));
    let result = work();
    SIMULATED.set(None);
    result
}

fn simulated() -> Option<Rc<Runtime>> {
    SIMULATED.with_borrow(Option::clone)
}
