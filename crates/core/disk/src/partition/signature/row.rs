//! Entries of the table of formats.

use std::io;
use vfs::hint::Advice;

use super::probe::{Fields, Probe};
use super::{DetectedFormat, SignatureDetails, Usage};

/// Position of a magic number.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    /// Offset from the start in bytes.
    Start(u64),
    /// Offset from the end in bytes.
    End(u64),
}

/// A magic number.
pub(super) type Magic = (At, &'static [u8]);

/// Reads the properties of a format after its magic number was found at an offset. Returns `None` if the other fields
/// do not match the format.
pub(super) type PropertyReader = fn(&Probe<'_>, u64) -> io::Result<Option<SignatureDetails>>;

/// A format.
pub(super) struct SignatureRow {
    pub(super) name: &'static str,
    pub(super) usage: Usage,
    pub(super) what: &'static str,
    pub(super) advice: Advice,
    pub(super) magics: &'static [Magic],
    pub(super) details: PropertyReader,
}

/// Placeholder for formats whose reader searches for the magic number itself.
pub(super) const ANYWHERE: Magic = (At::Start(0), &[]);

/// Accepts a magic number without further checks.
pub(super) fn bare(_: &Probe<'_>, _: u64) -> io::Result<Option<SignatureDetails>> {
    Ok(Some(SignatureDetails::default()))
}

/// Reads the properties from the fields of a structure.
pub(super) fn of(
    probe: &Probe<'_>,
    at: u64,
    len: u64,
    read: impl FnOnce(&Fields) -> Option<SignatureDetails>,
) -> io::Result<Option<SignatureDetails>> {
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

impl SignatureRow {
    pub(super) fn found(
        &self,
        at: u64,
        magic_len: u64,
        details: SignatureDetails,
    ) -> DetectedFormat {
        let Self { name, usage, what, advice, .. } = *self;
        let (at, magic_len) = details.place.unwrap_or((at, magic_len));
        DetectedFormat { name, usage, what, advice, at, magic_len, inner: None, details }
    }
}
