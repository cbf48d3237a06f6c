//! Accounts of inodes, and changes of usage by operations.

use operations::InMemoryUndo;
use smallvec::SmallVec;
use vfs::Ino;

use super::Quota;
use crate::format::inode::{Inode, ROOT_INO, flags};
use crate::params::Params;

/// Owner ids of an inode and the space that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// Ids by kind of quota.
    pub(super) ids: [u32; 3],
    /// Space in bytes.
    pub(super) space: i64,
}

/// Change of the usage of one id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) kind: usize,
    pub(super) id: u32,
    pub(super) inodes: i64,
    /// Space in bytes.
    pub(super) space: i64,
}

/// Changes of usage.
#[derive(Default)]
pub(crate) struct Changes(SmallVec<[Change; 4]>);

/// Changes of usage by an operation. Applied to the ledger at the commit.
pub(crate) struct UsageChanges<'a> {
    /// The quota in use; `None` if usage is not counted.
    quota: Option<&'a Quota>,
    changes: Changes,
    is_checkpoint_due: bool,
}

impl Account {
    /// Returns an inode's account, or `None` for inodes of the file system itself. The root directory is the only
    /// reserved inode that counts. An inode without names counts until it is freed.
    pub(crate) fn of(quota: &Quota, params: &Params, ino: Ino, inode: &Inode) -> Option<Self> {
        let sb = &params.sb;
        let is_own = quota.files.contains(&Some(ino))
            || ino.0 == u64::from(sb.raw.orphan_file_inum.get())
            || ino.0 < u64::from(sb.first_ino) && ino != ROOT_INO;
        if is_own || inode.mode() == 0 || inode.has_flag(flags::EA_INODE) {
            return None;
        }
        let units = inode.blocks_512(params.geometry.block_size());
        let space = i64::try_from(units.saturating_mul(512)).unwrap_or(i64::MAX);
        Some(Self { ids: [inode.uid(), inode.gid(), inode.projid()], space })
    }
}

impl Changes {
    /// Replaces an inode's account `old` by `new`.
    pub(crate) fn note(&mut self, old: Option<Account>, new: Option<Account>) {
        if old == new {
            return;
        }
        for kind in 0..3 {
            if let Some(old) = old {
                self.add(kind, old.ids[kind], -1, -old.space);
            }
            if let Some(new) = new {
                self.add(kind, new.ids[kind], 1, new.space);
            }
        }
        self.0.retain(|change| change.inodes != 0 || change.space != 0);
    }

    fn add(&mut self, kind: usize, id: u32, inodes: i64, space: i64) {
        match self.0.iter_mut().find(|change| change.kind == kind && change.id == id) {
            Some(change) => {
                change.inodes += inodes;
                change.space = change.space.saturating_add(space);
            }
            None => self.0.push(Change { kind, id, inodes, space }),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.0.iter()
    }
}

impl<'a> UsageChanges<'a> {
    pub(crate) fn new(quota: Option<&'a Quota>) -> Self {
        Self { quota, changes: Changes::default(), is_checkpoint_due: false }
    }

    /// Returns the quota in use, or `None` if usage is not counted.
    pub(crate) fn quota(&self) -> Option<&'a Quota> {
        self.quota
    }

    /// Replaces an inode's account `old` by `new`.
    pub(crate) fn note(&mut self, old: Option<Account>, new: Option<Account>) {
        self.changes.note(old, new);
    }

    /// Returns whether the changes made a checkpoint necessary.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.is_checkpoint_due
    }
}

impl InMemoryUndo for UsageChanges<'_> {
    fn keep(&mut self) {
        if let Some(quota) = self.quota.filter(|_| !self.changes.0.is_empty()) {
            self.is_checkpoint_due = quota.apply(&self.changes);
            self.changes.0.clear();
        }
    }
}
