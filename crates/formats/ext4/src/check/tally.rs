//! Usage of users, groups and projects, counted from the inodes.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::context::{Context, InodeUnderCheck};
use crate::format::features::RoCompat;
use crate::format::inode::flags;
use crate::params::Params;

/// Inodes and bytes by id, for each kind of quota.
pub(crate) type QuotaUsage = [HashMap<u32, (u64, u64)>; 3];

/// Attribute values of an inode that are in other inodes.
#[derive(Clone, Copy, Default)]
pub(super) struct Values {
    pub(super) count: u64,
    /// Bytes that the inode's `i_blocks` does not include.
    pub(super) bytes: u64,
}

/// Usage counted by a thread.
#[derive(Default)]
pub(super) struct ThreadUsage(QuotaUsage);

/// Usage counted by all threads.
pub(super) struct Tally {
    is_wanted: bool,
    all: Mutex<QuotaUsage>,
}

impl Tally {
    pub(super) fn new(params: &Params) -> Self {
        let is_wanted = params.sb.features.ro_compat(RoCompat::QUOTA);
        Self { is_wanted, all: Mutex::default() }
    }

    pub(super) const fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Adds the usage counted by a thread.
    pub(super) fn add(&self, counted: &mut ThreadUsage) {
        if !self.is_wanted {
            return;
        }
        let mut all = self.all.lock();
        for (all, counted) in all.iter_mut().zip(&mut counted.0) {
            for (id, (inodes, bytes)) in counted.drain() {
                let sum = all.entry(id).or_default();
                *sum = (sum.0 + inodes, sum.1.saturating_add(bytes));
            }
        }
    }

    pub(super) fn take(&self) -> QuotaUsage {
        std::mem::take(&mut *self.all.lock())
    }
}

impl ThreadUsage {
    /// Counts an inode in use. Of the file system's own inodes, only the root directory counts. The usage also includes
    /// its attribute `values` in other inodes: each counts as an inode with its bytes.
    pub(super) fn add(&mut self, context: &Context<'_>, subject: &InodeUnderCheck, values: Values) {
        let is_own = context.is_hidden(subject.ino) || subject.has(flags::EA_INODE);
        if !context.tally.is_wanted || is_own {
            return;
        }
        let inode = &subject.inode;
        let bytes = inode
            .blocks_512(context.geometry().block_size())
            .saturating_mul(512)
            .saturating_add(values.bytes);
        for (usage, id) in self.0.iter_mut().zip([inode.uid(), inode.gid(), inode.projid()]) {
            let sum = usage.entry(id).or_default();
            *sum = (sum.0 + 1 + values.count, sum.1.saturating_add(bytes));
        }
    }
}
