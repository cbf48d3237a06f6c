//! Error messages that cannot be returned to a caller.

use std::fmt;
use std::io::{self, Write};

/// Prints a message to standard error. Ignores write errors, so that a closed stream causes no
/// panic.
pub(crate) fn complain(what: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "{what}");
}
