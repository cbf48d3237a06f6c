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
    /// Number of inodes: the inode itself, and one for each attribute value in a separate inode.
    pub(super) inodes: i64,
    /// Space in bytes.
    pub(super) space: i64,
}

/// Change of the usage of one id.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsageDelta {
    pub(super) kind: usize,
    pub(super) id: u32,
    pub(super) inodes: i64,
    /// Space in bytes.
    pub(super) space: i64,
}

/// Changes of usage.
#[derive(Default)]
pub(crate) struct Changes(SmallVec<[UsageDelta; 4]>);

/// Changes of usage by an operation. Applied to the ledger at the commit.
pub(crate) struct UsageChanges<'a> {
    /// The quota in use; `None` if usage is not counted.
    quota: Option<&'a Quota>,
    changes: Changes,
    values: SmallVec<[Values; 2]>,
    is_checkpoint_due: bool,
}

/// Attribute values of an inode in separate inodes, as far as an operation knows them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    ino: Ino,
    /// Number before the operation, if it was counted.
    before: Option<i64>,
    /// Change of the number by the operation.
    change: i64,
}

impl Values {
    /// Returns the numbers before and after the operation. They are exact if the owners change, and otherwise have the
    /// right difference.
    fn numbers(self, is_freed: bool) -> (i64, i64) {
        let before = self.before.unwrap_or(if is_freed { -self.change } else { 0 });
        (before, before + self.change)
    }
}

impl Account {
    /// Returns an inode's account without its attribute values in separate inodes, or `None` for inodes of the file
    /// system itself and for such values. The root directory is the only reserved inode that counts. An inode without
    /// names counts until it is freed.
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
        Some(Self { ids: [inode.uid(), inode.gid(), inode.projid()], inodes: 1, space })
    }

    /// Returns the account with this number of attribute values in separate inodes. Their space is part of the inode's.
    pub(crate) fn with_values(self, count: i64) -> Self {
        Self { inodes: self.inodes + count, ..self }
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
                self.add(kind, old.ids[kind], -old.inodes, -old.space);
            }
            if let Some(new) = new {
                self.add(kind, new.ids[kind], new.inodes, new.space);
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
            None => self.0.push(UsageDelta { kind, id, inodes, space }),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &UsageDelta> {
        self.0.iter()
    }
}

impl<'a> UsageChanges<'a> {
    pub(crate) fn new(quota: Option<&'a Quota>) -> Self {
        Self {
            quota,
            changes: Changes::default(),
            values: SmallVec::new(),
            is_checkpoint_due: false,
        }
    }

    /// Returns the quota in use, or `None` if usage is not counted.
    pub(crate) fn quota(&self) -> Option<&'a Quota> {
        self.quota
    }

    /// Replaces the account `old` of an inode by `new`. Adds its attribute values in separate inodes.
    pub(crate) fn note(&mut self, ino: Ino, old: Option<Account>, new: Option<Account>) {
        let at = self.values.iter().position(|values| values.ino == ino);
        let values = at.map(|at| self.values.swap_remove(at));
        let (before, after) = values.map_or((0, 0), |values| values.numbers(new.is_none()));
        let old = old.map(|old| old.with_values(before));
        self.changes.note(old, new.map(|new| new.with_values(after)));
    }

    /// Notes how many attribute values an inode with new owners has in separate inodes.
    pub(crate) fn count_values(&mut self, ino: Ino, count: usize) {
        self.values_of(ino).before = Some(count as i64);
    }

    /// Notes that an inode gets attribute values in separate inodes, or loses some. The inode must be staged.
    pub(crate) fn change_values(&mut self, ino: Ino, change: i64) {
        if self.quota.is_some() && change != 0 {
            self.values_of(ino).change += change;
        }
    }

    fn values_of(&mut self, ino: Ino) -> &mut Values {
        let at = self.values.iter().position(|values| values.ino == ino).unwrap_or_else(|| {
            self.values.push(Values { ino, before: None, change: 0 });
            self.values.len() - 1
        });
        &mut self.values[at]
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
