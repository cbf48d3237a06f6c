//! The runtime for asynchronous work.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;
use uuid::Uuid;

/// Start of the clock in a simulation: 2026-01-01.
const SIMULATED_START: Duration = Duration::from_secs(1_767_225_600);

/// Number of worker threads. Requests wait far more than they compute.
const WORKERS: usize = 2;

/// Number of threads that must be available before the runtime starts: its workers, and one for name resolution. The
/// runtime would panic without them.
const THREADS_MIN: usize = WORKERS + 1;

static RUNTIME: OnceLock<Runtime> = OnceLock::new();

thread_local! {
    /// Simulation in this thread.
    static SIMULATED: RefCell<Option<Rc<Simulated>>> = const { RefCell::new(None) };
}

/// Replacement of this machine's threads, clock and random numbers.
struct Simulated {
    runtime: Runtime,
    start: Instant,
    /// Error of the clock, which is ahead.
    skew: Cell<Duration>,
    random: RefCell<Box<dyn FnMut() -> u64>>,
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
    if let Some(simulated) = simulated() {
        return simulated.runtime.handle().clone();
    }
    RUNTIME.get_or_init(|| build().expect("threads for requests")).handle().clone()
}

/// Runs `future` to completion. Must not be called from a task of the runtime.
///
/// # Panics
/// In a task of a runtime.
pub fn block_on<F: Future>(future: F) -> F::Output {
    match simulated() {
        Some(simulated) => simulated.runtime.block_on(future),
        None => handle().block_on(future),
    }
}

/// Returns the time of the system.
pub(crate) fn system_time() -> SystemTime {
    simulated().map_or_else(SystemTime::now, |simulated| {
        let _entered = simulated.runtime.enter();
        UNIX_EPOCH + SIMULATED_START + simulated.start.elapsed() + simulated.skew.get()
    })
}

/// Returns a random UUID.
pub(crate) fn random_uuid() -> Uuid {
    simulated().map_or_else(Uuid::new_v4, |simulated| {
        let mut random = simulated.random.borrow_mut();
        Uuid::from_u64_pair(random(), random())
    })
}

/// Runs `work` with all asynchronous work of the calling thread in `runtime`, which must have no other threads. Then the
/// order of tasks depends only on `work`, the requests it makes, its random numbers, and the runtime's clock. For tests.
#[doc(hidden)]
pub fn simulate<T>(
    runtime: Runtime,
    random: impl FnMut() -> u64 + 'static,
    work: impl FnOnce() -> T,
) -> T {
    let start = {
        let _entered = runtime.enter();
        Instant::now()
    };
    let (skew, random) = (Cell::new(Duration::ZERO), RefCell::new(Box::new(random) as _));
    SIMULATED.set(Some(Rc::new(Simulated { runtime, start, skew, random })));
    let result = work();
    SIMULATED.set(None);
    result
}

/// Makes the clock of a simulation wrong, for volumes that are opened from now on. For tests.
#[doc(hidden)]
pub fn skew_clock(by: Duration) {
    if let Some(simulated) = simulated() {
        simulated.skew.set(by);
    }
}

fn simulated() -> Option<Rc<Simulated>> {
    SIMULATED.with_borrow(Option::clone)
}
