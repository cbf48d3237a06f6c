//! A file system of one group that has nothing in it but the tree under test, and blocks for that.

use std::collections::BTreeSet;
use std::sync::Arc;

use blockdev::MemoryDevice;
use vfs::{FileType, Ino};
use zerocopy::FromZeros;

use crate::Xfs;
use crate::alloc::ags::{AgState, Ags, Root};
use crate::btree::Tree;
use crate::format::address::{AgBlock, AgNumber, Block};
use crate::format::btree::Shape;
use crate::format::features::{Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, Format, Inode};
use crate::format::superblock::{RawSuperblock, Superblock};
use crate::fs::Mode;
use crate::inode::Handle;
use crate::op::Op;
use crate::volume::Volume;

/// Blocks of the group.
pub(super) const AG_BLOCKS: u32 = 1 << 15;
const FIRST_BLOCK: u32 = 8;

/// Blocks for trees, instead of those that the allocator would give.
pub(in crate::btree) mod supply {
    use super::{AG_BLOCKS, BTreeSet, FIRST_BLOCK};
    use std::cell::RefCell;

    thread_local! {
        static TAKEN: RefCell<Option<BTreeSet<u32>>> = const { RefCell::new(None) };
    }

    /// A block; `None` in threads whose trees are not under test alone.
    pub(in crate::btree) fn take() -> Option<u32> {
        TAKEN.with_borrow_mut(|taken| {
            let taken = taken.as_mut()?;
            let block = (FIRST_BLOCK..AG_BLOCKS).find(|b| !taken.contains(b))?;
            taken.insert(block);
            Some(block)
        })
    }

    pub(in crate::btree) fn give(block: u64) -> bool {
        TAKEN.with_borrow_mut(|taken| {
            let Some(taken) = taken.as_mut() else { return false };
            assert!(taken.remove(&(block as u32)), "nobody took {block}");
            true
        })
    }

    pub(in crate::btree) fn taken() -> BTreeSet<u32> {
        TAKEN.with_borrow(Clone::clone).unwrap_or_default()
    }

    pub(in crate::btree) fn set(blocks: BTreeSet<u32>) {
        TAKEN.set(Some(blocks));
    }
}

fn superblock(block_log: u8) -> Superblock {
    let mut raw = RawSuperblock::new_zeroed();
    raw.blocksize.set(1 << block_log);
    raw.dblocks.set(AG_BLOCKS.into());
    raw.agblocks.set(AG_BLOCKS);
    raw.agcount.set(1);
    raw.versionnum.set(0xb4a5);
    raw.sectsize.set(512);
    raw.inodesize.set(512);
    (raw.blocklog, raw.sectlog, raw.inodelog) = (block_log, 9, 9);
    raw.agblklog = 15;
    raw.uuid = *b"btrees are tried";
    raw.features_ro_compat.set(RoCompat::all().bits());
    raw.features_incompat.set(Incompat::SPINODES.bits());
    Superblock { features: raw.features(), raw }
}

/// A file system whose trees do not exist yet.
pub(super) fn volume(block_log: u8) -> Xfs {
    supply::set(BTreeSet::new());
    let sb = superblock(block_log);
    let state = AgState { length: AG_BLOCKS, ..AgState::default() };
    let geometry = Geometry::new(&sb);
    let device = Arc::new(MemoryDevice::new(geometry.blocks << block_log));
    let volume = Arc::new(Volume { sb, geometry, ags: Ags::new(&geometry, vec![state]) });
    Xfs::of_volume(device, None, volume, 256 << 20, Mode::Fresh)
}

/// Gives a tree of the group a root that is an empty leaf.
pub(super) fn plant<T: Tree>(fs: &Xfs) {
    fs.atomically(|op| {
        let lease = op.lease(AgNumber(0))?;
        let block = AgBlock(supply::take().unwrap());
        make_leaf::<T>(op, block, 0);
        let tree = T::AG_TREE.unwrap();
        op.leases[lease].roots[tree as usize] = Root { block, levels: 1 };
        // As the headers count: roots among them in all but `btreeblks`.
        let state = &mut op.leases[lease];
        state.rmap_blocks = 1;
        state.refcount_blocks = 1;
        (state.ino_blocks, state.fino_blocks) = (1, 1);
        Ok(())
    })
    .unwrap();
}

fn make_leaf<T: Tree>(op: &mut Op<'_>, block: AgBlock, owner: u64) {
    let geometry = op.fs.volume.geometry;
    let tag = if T::AG_TREE.is_some() {
        T::KIND.of_group(AgNumber(0))
    } else {
        T::KIND.of_inode(Ino(owner), 0)
    };
    let place = Block(block.0.into());
    let id = op.txn.create(place.0, tag).unwrap();
    let header = T::SHAPE.header_size(true);
    let bytes = op.txn.edit(id, 0..header);
    T::SHAPE.init(&geometry, place, owner, 0, bytes);
}

/// An inode whose map is a tree with one leaf, which has the record given.
pub(super) fn plant_in_fork<T: Tree>(fs: &Xfs, fork_bytes: usize, first: &T::Record) -> Handle {
    let ino = Ino(128);
    let mut slot = [0; 512];
    slot[4] = 3;
    let mut inode = Inode::from_slot(&slot);
    inode.reset(FileType::Regular, 0o644, 1);
    inode.set_forkoff_bytes(fork_bytes);
    inode.set_format(Fork::Data, Format::Btree);
    inode.set_nblocks(1);
    let root = Shape::BMBT.root_area(fork_bytes);
    let block = supply::take().unwrap();
    fs.atomically(|op| {
        make_leaf::<T>(op, AgBlock(block), ino.0);
        let tag = T::KIND.of_inode(ino, 0);
        let id = op.buffer(Block(block.into()), tag)?;
        let area = T::SHAPE.leaf_area(&op.fs.volume.geometry);
        T::put_record(first, op.txn.edit(id, area.entry_range(0, 1)));
        op.txn.edit(id, area.count_range()).copy_from_slice(&[0, 1]);
        let entry = op.txn.data(id)[area.entry_range(0, 1)].to_vec();
        let bytes = inode.fork_mut(Fork::Data);
        bytes[root.level_range()].copy_from_slice(&[0, 1]);
        bytes[root.count_range()].copy_from_slice(&[0, 1]);
        T::put_low_key(&entry, &mut bytes[root.entry_range(0, 1)]);
        bytes[root.pointer_range(0, 1)].copy_from_slice(&u64::from(block).to_be_bytes());
        Ok(())
    })
    .unwrap();
    Handle::new(ino, inode, Block(4), 0)
}
