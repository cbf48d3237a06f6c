//! A file system of one group that contains nothing but the tree under test, with blocks for it.

use operations::{Outcome, RunOperations};
use std::collections::BTreeSet;
use std::sync::Arc;

use disk::MemoryDevice;
use engine::{Tag, Txn};
use vfs::{Error, FileType, Ino, Result};
use zerocopy::FromZeros;

use crate::XfsCore;
use crate::alloc::HeldAg;
use crate::alloc::ags::{AgState, Ags, Root};
use crate::alloc::trees::GroupTree;
use crate::btree::{Anchor, Supply, Tree, TreeOwner, TreeRoot};
use crate::format::address::{AgBlock, AgNumber, Block};
use crate::format::ag;
use crate::format::btree::TreeShape;
use crate::format::features::{Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::inode::{Fork, ForkFormat, Inode};
use crate::format::superblock::{RawSuperblock, Superblock};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::Op;
use crate::volume::Volume;
use operations::Mode;

/// Number of blocks of the group.
pub(super) const AG_BLOCKS: u32 = 1 << 15;
const FIRST_BLOCK: u32 = 8;

/// Supplies the trees under test with blocks, instead of an allocator.
pub(super) mod supply {
    use super::{AG_BLOCKS, BTreeSet, FIRST_BLOCK};
    use std::cell::RefCell;

    thread_local! {
        static TAKEN: RefCell<BTreeSet<u32>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(in crate::btree) fn take() -> Option<u32> {
        TAKEN.with_borrow_mut(|taken| {
            let block = (FIRST_BLOCK..AG_BLOCKS).find(|b| !taken.contains(b))?;
            taken.insert(block);
            Some(block)
        })
    }

    pub(in crate::btree) fn give(block: u64) {
        TAKEN.with_borrow_mut(|taken| {
            assert!(taken.remove(&(block as u32)), "nobody took {block}");
        });
    }

    pub(in crate::btree) fn taken() -> BTreeSet<u32> {
        TAKEN.with_borrow(Clone::clone)
    }

    pub(in crate::btree) fn set(blocks: BTreeSet<u32>) {
        TAKEN.set(blocks);
    }
}

/// A tree with the anchor `A`, with blocks of [`supply`].
pub(super) struct Supplied<A>(pub(super) A);

impl<'a, T: Tree, A: Anchor<'a, T>> Anchor<'a, T> for Supplied<A> {
    fn geometry(&self) -> &'a Geometry {
        self.0.geometry()
    }

    fn txn(&self) -> &Txn<'a> {
        self.0.txn()
    }

    fn txn_mut(&mut self) -> &mut Txn<'a> {
        self.0.txn_mut()
    }

    fn owner(&self) -> TreeOwner {
        self.0.owner()
    }

    fn root(&self) -> TreeRoot<'_> {
        self.0.root()
    }

    fn set_root(&mut self, block: u64, levels: u8) {
        self.0.set_root(block, levels);
    }

    fn fork_mut(&mut self) -> &mut [u8] {
        self.0.fork_mut()
    }

    fn count_block(&mut self, is_more: bool) -> Result<()> {
        self.0.count_block(is_more)
    }
}

impl<'a, T: Tree, A: Anchor<'a, T>> Supply<'a, T> for Supplied<A> {
    fn allocate_block(&mut self, _near: u64) -> Outcome<u64> {
        Ok(supply::take().ok_or(Error::NoSpace)?.into())
    }

    fn free_block(&mut self, block: u64) -> Outcome<()> {
        supply::give(block);
        Ok(())
    }
}

/// Returns the only group, with blocks of [`supply`] for its trees.
pub(super) fn group<'o, 'a>(op: &'o mut Op<'a>) -> Outcome<Supplied<HeldAg<'o, 'a>>> {
    Ok(Supplied(op.ag(AgNumber(0))?))
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

/// Makes a file system whose trees do not exist yet.
pub(super) fn volume(block_log: u8) -> XfsCore {
    supply::set(BTreeSet::new());
    let sb = superblock(block_log);
    let state = AgState { length: AG_BLOCKS, ..AgState::default() };
    let geometry = Geometry::new(&sb);
    let device = Arc::new(MemoryDevice::new(geometry.blocks << block_log));
    let ags = Ags::new(&geometry, vec![state], 0);
    let volume = Arc::new(Volume::new(sb, geometry, ags));
    XfsCore::of_volume(device, None, volume, 256 << 20, Mode::InProgress)
}

/// Gives a tree of the group a root that is an empty leaf.
pub(super) fn plant<T: GroupTree>(fs: &XfsCore) {
    fs.atomically(|op| {
        let block = AgBlock(supply::take().unwrap());
        make_leaf::<T>(op, block, T::KIND.of_group(AgNumber(0)));
        let state = &mut **op.ag(AgNumber(0))?.guard;
        state.roots[T::AG_TREE as usize] = Root { block, levels: 1 };
        // Counted like the headers count: including roots, except in `btreeblks`.
        state.rmap_blocks = 1;
        state.refcount_blocks = 1;
        (state.ino_blocks, state.fino_blocks) = (1, 1);
        Ok(())
    })
    .unwrap();
}

/// Fills the group's AGFL, for trees that take their blocks from it.
pub(super) fn fill_agfl(fs: &XfsCore) {
    let geometry = fs.volume.geometry;
    let (block, _) = ag::sector_place(&geometry, ag::AGFL_SECTOR);
    fs.atomically(|op| {
        let block = geometry.block_of(AgNumber(0), AgBlock(block));
        op.txn.create(block.0, BlockKind::AgHeader.of_group(AgNumber(0)))?;
        let mut group = op.ag(AgNumber(0))?;
        group.guard.flfirst = 1;
        (0..crate::format::ag::agfl_capacity(&geometry))
            .try_for_each(|_| group.push_agfl(AgBlock(supply::take().unwrap())))
    })
    .unwrap();
}

fn make_leaf<T: Tree>(op: &mut Op<'_>, block: AgBlock, tag: Tag) {
    let geometry = op.fs.volume.geometry;
    let place = Block(block.0.into());
    let id = op.txn.create(place.0, tag).unwrap();
    let header = T::SHAPE.header_size(true);
    let bytes = op.txn.edit(id, 0..header);
    T::SHAPE.init(&geometry, place, tag.owner, 0, bytes);
}

/// Makes an inode whose map is a tree with one leaf, which has the given record.
pub(super) fn plant_in_fork<T: Tree>(fs: &XfsCore, fork_bytes: usize, first: &T::Record) -> Handle {
    let ino = Ino(128);
    let mut slot = [0; 512];
    slot[4] = 3;
    let mut inode = Inode::from_slot(&slot);
    inode.reset(FileType::Regular, 0o644, 1);
    inode.set_forkoff_bytes(fork_bytes);
    inode.set_format(Fork::Data, ForkFormat::Btree);
    inode.set_nblocks(1);
    let root = TreeShape::BMBT.root_area(fork_bytes);
    let block = supply::take().unwrap();
    fs.atomically(|op| {
        let tag = T::KIND.of_inode(ino, 0);
        make_leaf::<T>(op, AgBlock(block), tag);
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
