//! What an inode counts for, and what operations change of that.

use operation::Side;
use smallvec::SmallVec;
use vfs::Ino;

use super::Quota;
use crate::format::inode::{Inode, ROOT_INO, flags};
use crate::params::Params;

/// Whose an inode is and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    /// By kind of quota.
    pub(super) ids: [u32; 3],
    /// In bytes.
    pub(super) space: i64,
}

/// How the usage of one id changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) kind: usize,
    pub(super) id: u32,
    pub(super) inodes: i64,
    /// In bytes.
    pub(super) space: i64,
}

/// How usage changes.
#[derive(Default)]
pub(crate) struct Changes(SmallVec<[Change; 4]>);

/// How an operation changes usage, which joins what is counted when the operation commits.
pub(crate) struct UsageChanges<'a> {
    /// Where usage is counted.
    quota: Option<&'a Quota>,
    changes: Changes,
    is_checkpoint_due: bool,
}

impl Account {
    /// What an inode counts for; `None` for those of the file system itself. Of the reserved inodes
    /// only the root directory counts. An inode without names that is not freed yet counts.
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
    /// Notes that an inode counts as `new` what counted as `old`.
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

    /// Where usage is counted; `None` if it is not.
    pub(crate) fn quota(&self) -> Option<&'a Quota> {
        self.quota
    }

    /// Notes that an inode counts as `new` what counted as `old`.
    pub(crate) fn note(&mut self, old: Option<Account>, new: Option<Account>) {
        self.changes.note(old, new);
    }

    /// Whether a checkpoint is due for what was kept.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        self.is_checkpoint_due
    }
}

impl Side for UsageChanges<'_> {
    fn keep(&mut self) {
        if let Some(quota) = self.quota.filter(|_| !self.changes.0.is_empty()) {
            self.is_checkpoint_due = quota.apply(&self.changes);
            self.changes.0.clear();
        }
    }
}
