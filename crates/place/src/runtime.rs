//! The one runtime of what is asynchronous.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle, Runtime};

/// Requests wait far more than they compute.
const WORKERS: usize = 2;

/// The runtime's handle, for libraries that start tasks of their own.
///
/// # Panics
/// If the system gives no threads.
pub fn handle() -> Handle {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let built = Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("places")
            .enable_all()
            .build();
        built.expect("threads for requests")
    });
    runtime.handle().clone()
}

/// Waits for `future` on the runtime. Not to be called from one of its tasks.
///
/// # Panics
/// In a task of a runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    handle().block_on(future)
}
