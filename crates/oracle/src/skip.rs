//! Ends a test as SKIPPED from any depth, where the machine lacks what the test needs.
//!
//! The test harness of the standard library knows two results: a test returns, or it panics. Therefore [`skip`] unwinds
//! with a special payload and without a message, and [`run_test`] turns it into a line on standard error. `#[test]` is the
//! attribute of `oracle-test` in each program that begins with `#[macro_use] extern crate oracle;`, so each of its
//! tests runs within `run_test`.
//!
//! A test may start threads. The kernel's name of a thread is inherited by the threads that it starts, so the name says to
//! which test a thread belongs. A thread that was given another name belongs to no test: its `skip` panics.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Start of the names of threads that belong to tests.
const PREFIX: &str = "test-";

/// The file with the kernel's name of the thread that reads or writes it: proc_pid_comm(5).
const NAME: &str = "/proc/thread-self/comm";

/// The payload of an unwinding that skips a test. The reason is in [`running`].
struct Skip;

/// A test that runs now.
struct Running {
    name: &'static str,
    /// Why it is skipped, once a thread of it said so.
    reason: Option<String>,
}

/// The tests that run now, by their numbers.
fn running() -> MutexGuard<'static, HashMap<u64, Running>> {
    static RUNNING: OnceLock<Mutex<HashMap<u64, Running>>> = OnceLock::new();
    RUNNING.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the body of a test. Called by the `#[test]` of this crate only.
#[doc(hidden)]
pub fn run_test(test: &'static str, body: impl FnOnce()) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    running().insert(number, Running { name: test, reason: None });
    let before = name();
    let _ = fs::write(NAME, format!("{PREFIX}{number}"));
    let result = catch_unwind(AssertUnwindSafe(body));
    let _ = fs::write(NAME, before);
    let reason = running().remove(&number).and_then(|test| test.reason);
    match (reason, result) {
        // A panic of the test follows from that of its thread.
        (Some(reason), _) => announce(test, &reason),
        (None, Err(panic)) => resume_unwind(panic),
        (None, Ok(())) => {}
    }
}

/// Ends the running test as SKIPPED.
///
/// # Panics
/// With the reason if `DISKWRIGHT_REQUIRE_TOOLS` is `1`, or if this thread belongs to no test.
#[track_caller]
pub fn skip(reason: &str) -> ! {
    let mut tests = running();
    let Some(test) = number_of_thread().and_then(|number| tests.get_mut(&number)) else {
        drop(tests);
        panic!("{reason}");
    };
    let name = test.name;
    if is_required() {
        drop(tests);
        panic!("{}", refusal(name, reason));
    }
    test.reason = Some(reason.to_owned());
    drop(tests);
    // Without the message of a panic.
    resume_unwind(Box::new(Skip));
}

/// The number of the test to which this thread belongs.
fn number_of_thread() -> Option<u64> {
    name().strip_prefix(PREFIX)?.parse().ok()
}

/// The kernel's name of this thread.
fn name() -> String {
    fs::read_to_string(NAME).unwrap_or_default().trim_end().to_owned()
}

/// Returns whether a test fails that lacks something.
pub(crate) fn is_required() -> bool {
    std::env::var_os("DISKWRIGHT_REQUIRE_TOOLS").is_some_and(|value| value == "1")
}

/// The message of a test that lacks something and may not be skipped.
pub(crate) fn refusal(test: &str, reason: &str) -> String {
    format!("{test} may not be skipped here, but {reason}")
}

/// Says on standard error that a test is skipped. The harness captures the output of `eprintln!`, but not this.
pub(crate) fn announce(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
