//! Entries of the table of formats.

use std::io;

use super::probe::{Fields, Probe};
use super::{Details, Found, Usage};

/// A place of a magic number.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// Bytes from the start.
    Start(u64),
    /// Bytes before the end.
    End(u64),
}

/// A magic number.
pub(super) type Magic = (At, &'static [u8]);

/// Reads the properties of a format whose magic number was found at a place. `None` if the rest is not of this format.
pub(super) type Reader = fn(&Probe<'_>, u64) -> io::Result<Option<Details>>;

/// A format.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) usage: Usage,
    pub(super) what: &'static str,
    pub(super) advice: &'static str,
    pub(super) magics: &'static [Magic],
    pub(super) details: Reader,
}

/// In the table for a format whose reader looks for the magic number itself.
pub(super) const ANYWHERE: Magic = (At::Start(0), &[]);

/// Accepts a magic number that says enough.
pub(super) fn bare(_: &Probe<'_>, _: u64) -> io::Result<Option<Details>> {
    Ok(Some(Details::default()))
}

/// Returns properties of the fields of a structure.
pub(super) fn of(
    probe: &Probe<'_>,
    at: u64,
    len: u64,
    read: impl FnOnce(&Fields) -> Option<Details>,
) -> io::Result<Option<Details>> {
    Ok(read(&probe.fields(at, len)?))
}

impl At {
    pub(super) fn of(self, len: u64) -> Option<u64> {
        match self {
            Self::Start(at) => Some(at),
            Self::End(before) => len.checked_sub(before),
        }
    }
}

impl Row {
    pub(super) fn found(&self, at: u64, magic_len: u64, details: Details) -> Found {
        let Self { name, usage, what, advice, .. } = *self;
        let (at, magic_len) = details.place.unwrap_or((at, magic_len));
        Found { name, usage, what, advice, at, magic_len, inner: None, details }
    }
}
