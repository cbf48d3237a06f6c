//! Information about a file.

use crate::{Entry, EntryKind, FileId, Metadata};

/// A file found by its path.
#[derive(Debug)]
pub(crate) struct FoundFile {
    pub(crate) kind: EntryKind,
    pub(crate) metadata: Metadata,
    pub(crate) id: FileId,
    pub(crate) links: u64,
}

/// An entry with the identity needed to detect other names of the same file.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) entry: Entry,
    pub(super) id: FileId,
    pub(super) links: u64,
}
