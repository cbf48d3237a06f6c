//! FUSE over io_uring, which the kernel has to be told to offer.

// The tests of the library use a part of it.
#![allow(dead_code)]

use std::fs;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Says, and decides, whether the kernel offers FUSE over io_uring.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether this thread's requests come over io_uring.
pub(crate) fn this_is_io_uring() -> bool {
    std::thread::current().name().is_some_and(|name| name.ends_with("-io_uring"))
}

/// Has io_uring switched on while any of these is there.
pub(crate) struct SwitchedOn {
    is_offered: bool,
}

/// How many there are, and what was there before the first.
static USERS: Mutex<(usize, String)> = Mutex::new((0, String::new()));

impl SwitchedOn {
    pub(crate) fn new() -> Self {
        Self { is_offered: switch_on().map_err(say_why_not).is_ok() }
    }

    /// Whether sessions have to be served over io_uring.
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

/// Kernels without it are no failure, whatever else has to be there.
fn say_why_not(error: io::Error) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    // The test harness captures what `eprintln!` prints, but not this.
    let _ = writeln!(
        io::stderr(),
        "SKIPPED io_uring in {test}, which has /dev/fuse instead: {PARAMETER}: {error}"
    );
}
