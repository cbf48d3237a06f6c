//! What an inode counts for, and what operations change of that.

use smallvec::SmallVec;
use vfs::Ino;

use super::Quota;
use crate::format::inode::{Inode, flags};
use crate::volume::Volume;

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

/// How an operation changes usage.
#[derive(Default)]
pub(crate) struct Changes(SmallVec<[Change; 4]>);

impl Account {
    /// What an inode counts for; `None` for those of the file system itself. Of the reserved inodes
    /// only the root directory counts. Who has no names but is not freed yet counts.
    pub(crate) fn of(quota: &Quota, volume: &Volume, ino: Ino, inode: &Inode) -> Option<Self> {
        let sb = &volume.sb;
        let is_own = quota.files.contains(&Some(ino))
            || ino.0 == u64::from(sb.raw.orphan_file_inum.get())
            || ino.0 < u64::from(sb.first_ino) && ino != crate::fs::ROOT_INO;
        if is_own || inode.mode() == 0 || inode.has_flag(flags::EA_INODE) {
            return None;
        }
        let units = inode.blocks_512(volume.geometry.block_size());
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

    /// Whether there is nothing to apply.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
