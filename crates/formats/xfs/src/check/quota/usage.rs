//! Usage of users, groups and projects according to their inodes.

use std::collections::HashMap;

use parking_lot::Mutex;
use vfs::Ino;

use super::super::context::Context;
use crate::format::inode::Inode;
use crate::format::quota::{Resource, UsageById, counted_files};
use crate::format::superblock::Superblock;

/// Maximum number of identifiers counted per kind.
pub(super) const IDS_MAX: usize = 1 << 20;

/// Number of blocks that quotas need not count, for each inode.
pub(in super::super) type Uncounted = HashMap<u64, i64>;

/// The usage counted so far, by kind.
pub(crate) struct Usage {
    pub(super) kinds: [Option<Mutex<UsageById>>; 3],
    pub(super) files: [Ino; 3],
    uncounted: Uncounted,
}

/// Returns whether an image says that any quotas were counted.
pub(in super::super) fn is_counted(sb: &Superblock) -> bool {
    counted_files(&sb.raw).iter().any(Option::is_some)
}

impl Usage {
    /// Returns `None` if nothing must be counted. Blocks in `uncounted` are not counted.
    pub(in super::super) fn new(ctx: &Context<'_>, uncounted: Uncounted) -> Option<Self> {
        let raw = &ctx.sb.raw;
        if !is_counted(&ctx.sb) {
            return None;
        }
        let counted = counted_files(raw);
        let kinds = counted.map(|file| file.is_some().then(Mutex::default));
        // Files are not counted, even if their kind is not.
        let named = [raw.uquotino.get(), raw.gquotino.get(), raw.pquotino.get()];
        let files = [0, 1, 2].map(|at| Ino(counted[at].unwrap_or(named[at])));
        Some(Self { kinds, files, uncounted })
    }

    /// Returns an empty usage of all kinds. `files` are the quota files that the superblock names.
    pub(in super::super) fn of_all_kinds(files: [Ino; 3]) -> Self {
        let kinds = [(); 3].map(|()| Some(Mutex::default()));
        Self { kinds, files, uncounted: Uncounted::new() }
    }

    /// Returns the usage of each kind; `None` if one is incomplete.
    pub(in super::super) fn into_kinds(self) -> Option<[UsageById; 3]> {
        let kinds = self.kinds.map(|kind| kind.map(Mutex::into_inner).unwrap_or_default());
        kinds.iter().all(|kind| kind.len() < IDS_MAX).then_some(kinds)
    }

    /// Counts an inode in use that maps `realtime` blocks of the realtime section.
    pub(in super::super) fn add(&self, ino: Ino, inode: &Inode, realtime: u64) {
        if self.files.contains(&ino) || inode.is_metadata() {
            return;
        }
        let uncounted = self.uncounted.get(&ino.0).copied().unwrap_or(0) as u64;
        let blocks = inode.nblocks().wrapping_sub(realtime);
        // Intents of a realtime file concern its data.
        let (blocks, realtime) = match inode.is_realtime() {
            true => (blocks, realtime.wrapping_sub(uncounted)),
            false => (blocks.wrapping_sub(uncounted), realtime),
        };
        let ids = [inode.uid(), inode.gid(), inode.projid()];
        for (kind, id) in self.kinds.iter().zip(ids) {
            let Some(kind) = kind else { continue };
            let mut kind = kind.lock();
            if kind.len() < IDS_MAX || kind.contains_key(&id) {
                let counts = kind.entry(id).or_default();
                let mut add = |resource: Resource, more| {
                    let count = &mut counts[resource as usize];
                    *count = count.wrapping_add(more);
                };
                add(Resource::Blocks, blocks);
                add(Resource::Inodes, 1);
                add(Resource::RealtimeBlocks, realtime);
            }
        }
    }
}
