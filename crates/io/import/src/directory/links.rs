//! Detection of files with several names.

use std::collections::HashMap;

use crate::{Entry, EntryKind, FileId};

/// Files with several names, by identity.
#[derive(Debug, Default)]
pub(super) struct LinkedFiles(HashMap<FileId, Linked>);

/// A file with further names to come.
#[derive(Debug)]
struct Linked {
    path: Box<[u8]>,
    /// Number of names not found yet.
    left: u64,
}

impl LinkedFiles {
    /// Converts an additional name of a file with `links` names into a hard link.
    pub(super) fn resolve(&mut self, mut entry: Entry, id: FileId, links: u64) -> Entry {
        if links < 2 || matches!(entry.kind, EntryKind::Directory) {
            return entry;
        }
        if let Some(first) = self.0.get_mut(&id) {
            entry.kind = EntryKind::Hardlink(first.path.to_vec());
            entry.xattrs = Vec::new();
            first.left = first.left.saturating_sub(1);
            if first.left == 0 {
                self.0.remove(&id);
            }
        } else {
            let path = entry.path.as_slice().into();
            self.0.insert(id, Linked { path, left: links - 1 });
        }
        entry
    }
}
