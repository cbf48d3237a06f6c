//! Deferred creates ([`operations::deferred_create`]) in ext4. Only creates in indexed directories are deferred, and
//! inodes are reserved in runs that share a block of the inode table.

use std::ops::ControlFlow;

use operations::deferred_create::{
    Batch, BatchOrder, DeferCreates, DeferredCreates, DeferredFile, HashNames, InodeRun,
};
use operations::inode::{InodeHandle as _, load_dir};
use operations::reserve::Claim;
use operations::{Mode, Outcome, RunOperations};
use vfs::{Attributes, Error, Ino, Result};

use crate::Ext4Core;
use crate::alloc::guard::Bitmaps as _;
use crate::alloc::reserved::RUN;
use crate::dir::{for_each_leaf, index};
use crate::format::address::{FileBlock, Group};
use crate::format::dirent::{self, record_size};
use crate::format::features::RoCompat;
use crate::format::hash::{HashVersion, NameHasher};
use crate::format::inode::flags;
use crate::inode::{self, Handle};
use crate::op::Op;
use crate::op::source::BlockSource as _;

/// Flags that a directory may have if creates in it are to be deferred.
const PLAIN: u32 = flags::INDEX | flags::EXTENTS;

/// Clusters for blocks whose number does not depend on the number of names.
const SPACE_LEAST: u64 = 16;

/// Returns whether creates can be deferred in this file system at all.
pub(crate) fn is_possible(volume: &crate::volume::Volume, mode: Mode, has_log: bool) -> bool {
    let features = &volume.sb.features;
    mode == Mode::Writable
        && has_log
        && volume.dir_index
        && volume.geometry.inodes_per_group.is_multiple_of(RUN)
        && volume.geometry.cluster_blocks_log == 0
        && !features.ro_compat(RoCompat::QUOTA)
}

impl HashNames for NameHasher {
    /// Returns the sort key of a name, which follows the order of the index.
    fn key(&self, name: &[u8]) -> u64 {
        let hash = self.hash(name);
        (u64::from(hash.major) << 32) | u64::from(hash.minor)
    }
}

impl DeferCreates for Ext4Core {
    const ORDER: BatchOrder = BatchOrder::Hashes;

    type Hasher = NameHasher;

    fn deferred(&self) -> &DeferredCreates<NameHasher> {
        &self.deferred
    }

    fn run_id(ino: Ino) -> u64 {
        ino.0.wrapping_sub(1) / u64::from(RUN)
    }

    fn generation_to_be(&self, ino: Ino) -> u32 {
        self.next_generation(ino)
    }

    fn blocks_of(&self, dir: &Handle) -> u64 {
        dir.inode.size() >> self.volume.sb.block_size_log
    }

    /// The limit is far below the capacity of the index, so that a name that does not fit is refused at once.
    fn suits(&self, dir: &Handle, blocks: u64, more: u64) -> bool {
        let levels = if self.volume.large_dir { 3 } else { 2 };
        let leaves_max = (self.volume.block_size() as u64 / 16).saturating_pow(levels) / 2;
        dir.inode.flags() & !PLAIN == 0
            && index::is_indexed(self, dir)
            && blocks + more < leaves_max
    }

    fn for_each_key(
        &self,
        dir: &Handle,
        hasher: NameHasher,
        each: &mut dyn FnMut(u64),
    ) -> Result<()> {
        for_each_leaf(&mut &*self, dir, FileBlock(0), &mut |source, _, place, kind| {
            source.with(place, kind.of(dir.owner), |block| {
                dirent::entries(block).for_each(|entry| each(hasher.key(entry.name)));
            })?;
            Ok::<_, Error>(ControlFlow::Continue(()))
        })
    }

    fn bytes_of_name(&self, len: usize) -> usize {
        record_size(len)
    }

    /// A full leaf is split for the first name in it. Both halves then have room for at least a quarter of a block, so
    /// that many bytes must be added before either is split again. A node of the index or of the directory's map is
    /// split at most once per 32 new entries.
    fn space_for(&self, blocks: u64, names: usize, bytes: usize) -> u64 {
        let first = blocks.min(names as u64);
        let leaves = first + bytes as u64 * 4 / self.volume.block_size() as u64;
        leaves + leaves / 32 + SPACE_LEAST
    }

    fn reserve_inodes(&self, dir: &Handle) -> Result<Option<InodeRun>> {
        match self.observe(|op| op.reserve_inodes(dir)) {
            Ok(run) => Ok(Some(run)),
            Err(Error::NoInodes | Error::NoSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn let_go_of_inode(&self, ino: Ino) {
        if let Some((group, index)) = self.volume.geometry.place_of(ino) {
            self.volume.groups.let_go_of_inode(group, index);
        }
    }

    fn promise(&self, dir: &Handle, mut wanted: u64, each: &mut dyn FnMut(u32, u32)) -> Result<()> {
        let home = self.volume.geometry.place_of(dir.ino()).map_or(Group(0), |(group, _)| group);
        let groups = &self.volume.groups;
        for group in groups.from(groups.block_spill(home)) {
            if wanted == 0 {
                break;
            }
            if groups.usable_blocks(group, Claim::Ordinary) < 2 {
                continue;
            }
            let taken = self.observe(|op| op.promise(group, wanted))?;
            wanted -= u64::from(taken);
            each(group.0, taken);
        }
        Ok(())
    }

    fn release(&self, group: u32, count: u32) {
        self.volume.groups.release(Group(group), count);
    }

    fn apply_batch(&self, dir: Ino, batch: &Batch) -> Result<()> {
        let before = load_dir(self, dir)?;
        self.atomically_freeing(|op| {
            let mut parent = before;
            let entries = batch.entries().map(|(key, entry)| ((key >> 32) as u32, entry));
            op.add_in_order(&mut parent, entries)?;
            for (record, _) in batch.by_inode() {
                op.take_reserved(record.ino)?;
            }
            op.expect_staged(batch.records().len() + 1);
            for (record, _) in batch.by_inode() {
                op.stage_new(self.new_file(record.ino, record.generation, &record.new)?);
            }
            parent.touch(batch.time());
            op.stage_dir(parent, &before)
        })
    }

    fn attributes_of(&self, file: &DeferredFile) -> Result<Attributes> {
        let handle = self.new_file(file.ino, file.generation, &file.new)?;
        inode::attributes(self, &handle)
    }
}

impl Op<'_> {
    /// Returns the name hasher of a directory, or `None` if creates must not be deferred there.
    pub(crate) fn hasher_to_defer(&mut self, dir: &Handle) -> Outcome<Option<NameHasher>> {
        if dir.inode.flags() & !PLAIN != 0 || !index::is_indexed(self.fs, dir) {
            return Ok(None);
        }
        let (info, _) = index::root(self, dir)?;
        let hasher = self.fs.volume.hasher(info.hash_version);
        let mixes = |version| matches!(version, HashVersion::HalfMd4 | HashVersion::Tea);
        Ok(hasher.filter(|hasher| mixes(hasher.version)))
    }

    /// Promises up to `wanted` clusters of a group, but at most half of the free ones. Returns the number of promised
    /// clusters.
    fn promise(&mut self, group: Group, wanted: u64) -> Outcome<u32> {
        let at = self.hold(group)?;
        let guard = &self.group_guards[at];
        let count = u64::from(guard.usable_blocks(Claim::Ordinary) / 2).min(wanted) as u32;
        guard.group().promise(count);
        Ok(count)
    }
}
