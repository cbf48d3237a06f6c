//! What is known of a file.

use crate::{Entry, EntryKind, FileId, Metadata};

/// A file that was found by its path.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) kind: EntryKind,
    pub(crate) metadata: Metadata,
    pub(crate) id: FileId,
    pub(crate) links: u64,
}

/// An entry with what is needed to recognise other names of the same file.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) entry: Entry,
    pub(super) id: FileId,
    pub(super) links: u64,
}
