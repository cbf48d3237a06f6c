//! Ends a test as SKIPPED, from any call depth, if the machine lacks something that the test needs.
//!
//! The standard test harness knows two results: a test returns, or it panics. Therefore [`skip`] unwinds with a special
//! payload and without a message, and [`run_test`] converts it to a line on standard error. `#[test]` is the attribute
//! of `testkit-macros` in each program that begins with `#[macro_use] extern crate testkit;`, so each of its tests runs
//! within `run_test`.
//!
//! A test may start threads. Threads inherit the kernel's name of their parent, so the name identifies the test of a
//! thread. A thread with another name belongs to no test: its `skip` panics.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Prefix of the names of threads that belong to tests.
const PREFIX: &str = "test-";

/// The file with the kernel's name of the thread that reads or writes it: proc_pid_comm(5).
const NAME: &str = "/proc/thread-self/comm";

/// The payload of an unwinding that skips a test. The reason is in [`running`].
struct Skip;

/// A running test.
struct Running {
    name: &'static str,
    /// Reason of the skip, after a thread has requested it.
    reason: Option<String>,
}

/// The running tests by number.
fn running() -> MutexGuard<'static, HashMap<u64, Running>> {
    static RUNNING: OnceLock<Mutex<HashMap<u64, Running>>> = OnceLock::new();
    RUNNING.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the body of a test. Called only by the `#[test]` of this crate.
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
        // A panic of the test may result from the skip of its thread.
        (Some(reason), _) => announce(test, &reason),
        (None, Err(panic)) => resume_unwind(panic),
        (None, Ok(())) => {}
    }
}

/// Ends the running test as SKIPPED.
///
/// # Panics
/// If `DISKWRIGHT_REQUIRE_TOOLS` is `1`, or if this thread belongs to no test.
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
    // Without a panic message.
    resume_unwind(Box::new(Skip));
}

/// Returns the number of the test to which this thread belongs.
fn number_of_thread() -> Option<u64> {
    name().strip_prefix(PREFIX)?.parse().ok()
}

/// Returns the kernel's name of this thread.
fn name() -> String {
    fs::read_to_string(NAME).unwrap_or_default().trim_end().to_owned()
}

/// Returns whether a test with a missing need fails instead of being skipped.
pub(crate) fn is_required() -> bool {
    std::env::var_os("DISKWRIGHT_REQUIRE_TOOLS").is_some_and(|value| value == "1")
}

/// Returns the message of a test with a missing need that may not be skipped.
pub(crate) fn refusal(test: &str, reason: &str) -> String {
    format!("{test} may not be skipped here, but {reason}")
}

/// Prints to standard error that a test is skipped. The harness captures the output of `eprintln!`, but not this.
pub(crate) fn announce(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
