//! Deferred creates ([`operations::deferred_create`]) in XFS. A run of reserved inodes is the free part of a chunk that
//! is already on disk, so that all inodes of a chunk are allocated together.

mod keys;

use operations::deferred_create::{
    Batch, BatchOrder, DeferCreates, DeferredCreates, DeferredFile, HashNames as _, InodeRun,
};
use operations::inode::{InodeHandle as _, load_dir};
use operations::reserve::Claim;
use operations::{Mode, Outcome, RunOperations};
use std::ops::ControlFlow;
use vfs::{Attributes, Error, FileType, Ino, Result};

use crate::XfsCore;
use crate::dir;
use crate::format::address::AgNumber;
use crate::format::dir::DirLayout;
use crate::format::features::RoCompat;
use crate::format::geometry::INODES_PER_CHUNK;
use crate::format::inode::flags2;
use crate::inode::{self, Handle};
use crate::op::Op;
use crate::quota::Quotas;
use crate::volume::Volume;
pub(crate) use keys::NameKeys;

/// Flags of a directory that do not affect its new files.
const PLAIN: u64 = flags2::BIGTIME | flags2::NREXT64;

/// Constant part of [`DeferCreates::space_for`], in blocks.
const SPACE_LEAST: u64 = 16;

/// Maximum length of a name that always fits into its inode as a parent pointer, in bytes.
const NAME_INLINE_MAX: usize = 64;

/// Size of a hash and its address in a leaf, in bytes.
const LEAF_ENTRY: u64 = 8;

/// Maximum size of the data blocks of a directory, log2 of bytes.
const DATA_SPACE_LOG: u8 = 35;

/// Returns whether creates can be deferred at all in a file system.
pub(crate) fn is_possible(volume: &Volume, mode: Mode) -> bool {
    let geometry = &volume.geometry;
    mode == Mode::Writable
        && geometry.features.crc()
        && geometry.features.ro_compat(RoCompat::FINOBT)
        && !geometry.features.ascii_ci()
        && geometry.dir_block_blocks() == 1
        && 1 << geometry.inodes_per_block_log() <= INODES_PER_CHUNK
        // Files over a limit must be refused when they are created.
        && !volume.quotas.get().is_some_and(Quotas::is_enforced)
}

impl DeferCreates for XfsCore {
    const ORDER: BatchOrder = BatchOrder::Made;

    type Hasher = NameKeys;

    fn deferred(&self) -> &DeferredCreates<NameKeys> {
        &self.deferred
    }

    /// The number of the chunk.
    fn run_id(ino: Ino) -> u64 {
        ino.0 / u64::from(INODES_PER_CHUNK)
    }

    /// The free inode already has its generation.
    fn generation_to_be(&self, _: Ino) -> u32 {
        0
    }

    fn blocks_of(&self, dir: &Handle) -> u64 {
        dir.inode.size() >> self.volume.geometry.block_log
    }

    fn suits(&self, dir: &Handle, blocks: u64, more: u64) -> bool {
        let blocks_max = 1 << (DATA_SPACE_LOG - self.volume.geometry.block_log);
        dir.inode.flags() == 0
            && dir.inode.flags2() & !PLAIN == 0
            && (blocks + more) * 2 < blocks_max
    }

    fn for_each_key(
        &self,
        dir: &Handle,
        hasher: NameKeys,
        each: &mut dyn FnMut(u64),
    ) -> Result<()> {
        dir::for_each_entry(&mut &*self, dir, &mut |entry| {
            each(hasher.key(entry.name));
            ControlFlow::Continue(())
        })
    }

    /// An entry, and a block of attributes if the parent pointer may need one.
    fn bytes_of_name(&self, len: usize) -> usize {
        let geometry = &self.volume.geometry;
        let attributes = if len > NAME_INLINE_MAX { geometry.block_size() } else { 0 };
        DirLayout::new(geometry).entry_size(len) + attributes
    }

    /// Counts data blocks, filled to three quarters, and leaves. An entry is at least twice as large as its hash, so
    /// there are at most half as many full leaves as data blocks. Each may be split for the first name in it. Both
    /// halves then have room for at least a quarter of a block, so that much must be added before either is split
    /// again. Each node above has more than 32 children.
    fn space_for(&self, blocks: u64, names: usize, bytes: usize) -> u64 {
        let (names, size) = (names as u64, self.volume.block_size() as u64);
        let first = (blocks / 2 + 1).min(names);
        let leaves = first + names * LEAF_ENTRY * 4 / size;
        let all = leaves + bytes as u64 * 4 / 3 / size;
        all + all / 32 + SPACE_LEAST
    }

    fn reserve_inodes(&self, dir: &Handle) -> Result<Option<InodeRun>> {
        let ags = &self.volume.ags;
        let found = self.atomically_then(
            |op| op.find_free_inodes(dir),
            |found| {
                ags.group(found.ag).reserved.keep(found.chunk, found.mask);
                Ok(())
            },
        );
        match found {
            Ok(found) => {
                let base = self.volume.geometry.ino(found.ag, found.chunk);
                Ok(Some(InodeRun::new(base, found.mask)))
            }
            Err(Error::NoInodes | Error::NoSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn let_go_of_inode(&self, ino: Ino) {
        if let Some((ag, ino)) = self.volume.geometry.split_ino(ino) {
            self.volume.ags.group(ag).reserved.let_go(ino);
        }
    }

    fn promise(&self, dir: &Handle, mut wanted: u64, each: &mut dyn FnMut(u32, u32)) -> Result<()> {
        let geometry = &self.volume.geometry;
        let (home, _) = geometry.split_ino(dir.ino()).unwrap_or_default();
        for at in 0..geometry.ag_count {
            let ag = AgNumber((home.0 + at) % geometry.ag_count);
            if wanted == 0 {
                break;
            }
            if self.volume.ags.usable(ag, Claim::Ordinary) < 2 {
                continue;
            }
            let taken = self.observe(|op| op.promise(ag, wanted))?;
            wanted -= u64::from(taken);
            each(ag.0, taken);
        }
        Ok(())
    }

    fn release(&self, group: u32, count: u32) {
        self.volume.ags.group(AgNumber(group)).release(count);
    }

    fn apply_batch(&self, dir: Ino, batch: &Batch) -> Result<()> {
        let before = load_dir(self, dir)?;
        for (record, _) in batch.by_inode() {
            match self.provide_quota(Some(record.new.uid), Some(record.new.gid), Some(0)) {
                // The files exist already. Without a record, the kernel counts at the next mount.
                Ok(()) | Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        }
        let inodes: Vec<Ino> = batch.by_inode().map(|(record, _)| record.ino).collect();
        self.atomically_freeing(|op| {
            let mut parent = before.clone();
            batch.entries().try_for_each(|(_, entry)| op.add_entry(&mut parent, entry))?;
            op.take_kept(&inodes)?;
            for (record, name) in batch.by_inode() {
                op.make_kept(&before, record, name)?;
            }
            parent.touch(batch.time());
            op.stage(parent);
            Ok(())
        })
    }

    fn attributes_of(&self, file: &DeferredFile) -> Result<Attributes> {
        let mut handle = self.handle_to_be(file.ino)?;
        self.set_new(&mut handle.inode, FileType::Regular, &file.new);
        inode::attributes(self, &handle)
    }
}

impl Op<'_> {
    /// Creates a file in a reserved inode that this operation allocated.
    fn make_kept(&mut self, dir: &Handle, file: &DeferredFile, name: &[u8]) -> Outcome<()> {
        let (ag, ag_ino) = self.fs.volume.geometry.split_ino(file.ino).ok_or(Error::NotFound)?;
        let mut handle = self.new_handle(ag, ag_ino)?;
        self.fs.set_new(&mut handle.inode, FileType::Regular, &file.new);
        self.add_parent(&mut handle, (dir, name).into())?;
        self.stage(handle);
        Ok(())
    }

    /// Promises up to `wanted` blocks of a group, but at most half of its free ones. Returns how many.
    fn promise(&mut self, ag: AgNumber, wanted: u64) -> Outcome<u32> {
        let held = self.ag(ag)?;
        let count = u64::from(held.usable(Claim::Ordinary) / 2).min(wanted) as u32;
        held.guard.group().promise(count);
        Ok(count)
    }
}
