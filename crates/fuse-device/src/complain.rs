//! What nobody can be told otherwise.

use std::fmt;
use std::io::{self, Write};

/// Says on standard error what nobody can be told otherwise. That it is closed is no reason to panic.
pub(crate) fn complain(what: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "{what}");
}
