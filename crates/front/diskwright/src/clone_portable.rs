//! Stub for hosts other than Linux: sharing of blocks is not supported.

use std::fs::File;

/// Minimum size for sharing: nothing is shared.
pub(crate) const BYTES_MIN: u64 = u64::MAX;

/// Host file that shares blocks; never exists here.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CloneTarget {}

/// Range of a host file.
#[expect(dead_code, reason = "file ranges are cloned only on Linux")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    pub(crate) file: &'a File,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl CloneTarget {
    /// Returns `None`.
    pub(crate) fn of(_: &File) -> Option<Self> {
        None
    }

    /// Never called, because no value exists.
    pub(crate) fn share(&self, _: Range<'_>, _: u64) -> u64 {
        match *self {}
    }
}
