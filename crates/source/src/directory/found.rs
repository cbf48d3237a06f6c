//! What is known of a file that was found by its path.

use crate::{EntryKind, FileId, Metadata};

/// A file that was found by its path.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) kind: EntryKind,
    pub(crate) metadata: Metadata,
    pub(crate) id: FileId,
    pub(crate) links: u64,
}
