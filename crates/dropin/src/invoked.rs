//! How a program was called, and where it speaks.

use std::fmt::Arguments;
use std::io::{self, Write};

/// How a program was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Invoked {
    /// Its name.
    pub(crate) name: &'static str,
}

impl Invoked {
    /// Says which version it is, and returns the status to end with.
    pub(crate) fn version(&self) -> u8 {
        say(format_args!("{} by Diskwright {}", self.name, env!("CARGO_PKG_VERSION")));
        0
    }
}

/// Says something on standard output. A reader that has gone away is no failure of the program.
pub(crate) fn say(text: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{text}");
}

/// Says lines at once, which end with the last of them.
pub(crate) fn say_all(lines: &str) {
    let _ = io::stdout().write_all(lines.as_bytes());
}
