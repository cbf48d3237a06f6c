//! FUSE over io_uring, which must be enabled in the kernel.

// The unit tests of the library use only a part of it.
#![allow(dead_code)]

use std::fs;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Module parameter that shows and sets whether the kernel offers FUSE over io_uring.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Returns whether this thread's requests come over io_uring.
pub(crate) fn this_is_io_uring() -> bool {
    std::thread::current().name().is_some_and(|name| name.ends_with("-io_uring"))
}

/// Keeps io_uring enabled while any value of this type exists.
pub(crate) struct SwitchedOn {
    is_offered: bool,
}

/// Number of values, and the parameter before the first one.
static USERS: Mutex<(usize, String)> = Mutex::new((0, String::new()));

impl SwitchedOn {
    pub(crate) fn new() -> Self {
        Self { is_offered: switch_on().map_err(say_why_not).is_ok() }
    }

    /// Returns whether sessions must be served over io_uring.
    pub(crate) fn is_offered(&self) -> bool {
        self.is_offered
    }
}

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        if self.is_offered {
            let (users, before) = &mut *USERS.lock().unwrap_or_else(PoisonError::into_inner);
            *users -= 1;
            if *users == 0 {
                fs::write(PARAMETER, before).unwrap();
            }
        }
    }
}

fn switch_on() -> io::Result<()> {
    let (users, before) = &mut *USERS.lock().unwrap_or_else(PoisonError::into_inner);
    if *users == 0 {
        *before = fs::read_to_string(PARAMETER)?;
        fs::write(PARAMETER, "Y")?;
    }
    *users += 1;
    Ok(())
}

/// Reports that io_uring is unavailable. This is not a failure, even if the environment requires all
/// other tools.
fn say_why_not(error: io::Error) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    // The test harness captures what `eprintln!` prints, but not this.
    let _ = writeln!(
        io::stderr(),
        "SKIPPED io_uring in {test}, which has /dev/fuse instead: {PARAMETER}: {error}"
    );
}
