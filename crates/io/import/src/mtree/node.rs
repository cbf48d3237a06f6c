//! One file of a manifest's tree.

use super::digest::Digest;
use crate::{Entry, EntryKind, FileId, Metadata, Xattr};

/// A file of the tree.
#[derive(Debug)]
pub(super) struct ManifestNode {
    pub(super) path: Vec<u8>,
    pub(super) kind: EntryKind,
    pub(super) digests: Vec<Digest>,
    /// Line number; 0 if the file is implied.
    pub(super) line: usize,
    pub(super) metadata: Metadata,
    /// Sorted by name.
    pub(super) xattrs: Vec<Xattr>,
    /// Identity of the host file, if that has several names.
    pub(super) linked: Option<FileId>,
}

impl ManifestNode {
    /// Returns whether two names can belong to one file.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.metadata == other.metadata && self.xattrs == other.xattrs
    }

    /// Returns the entry of the file.
    pub(super) fn entry(&self) -> Entry {
        let kind = match &self.kind {
            EntryKind::File(content) => EntryKind::File(content.duplicate()),
            EntryKind::Directory => EntryKind::Directory,
            EntryKind::Symlink(target) => EntryKind::Symlink(target.clone()),
            EntryKind::Hardlink(target) => EntryKind::Hardlink(target.clone()),
            &EntryKind::CharDevice { major, minor } => EntryKind::CharDevice { major, minor },
            &EntryKind::BlockDevice { major, minor } => EntryKind::BlockDevice { major, minor },
            EntryKind::Fifo => EntryKind::Fifo,
            EntryKind::Socket => EntryKind::Socket,
        };
        let is_link = matches!(kind, EntryKind::Hardlink(_));
        let xattrs = if is_link { Vec::new() } else { self.xattrs.clone() };
        Entry { path: self.path.clone(), kind, metadata: self.metadata, xattrs, inode: None }
    }
}
