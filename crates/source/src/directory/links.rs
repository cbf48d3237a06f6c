//! Files with several names, recognised as they come.

use std::collections::HashMap;

use crate::{Entry, EntryKind, FileId};

/// Files with several names, by what identifies them.
#[derive(Debug, Default)]
pub(super) struct Links(HashMap<FileId, Linked>);

/// A file more of whose names may come.
#[derive(Debug)]
struct Linked {
    path: Box<[u8]>,
    /// Names not seen yet.
    left: u64,
}

impl Links {
    /// Turns a further name of a file, which has `links` of them, into a hard link.
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
