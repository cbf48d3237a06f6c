//! The trees, and the on-disk form of their records and keys. Values are not validated here: that is up to the users of
//! a record.

use super::Tree;
use crate::format::address::{AgBlock, AgIno, FileBlock};
use crate::format::btree::TreeShape;
use crate::format::bytes::{be16, be32, be64, put16, put32, put64};
use crate::format::extent::{Extent, offset_of};
use crate::format::geometry::INODES_PER_CHUNK;
use crate::kind::BlockKind;

/// Free space by block.
pub(crate) struct BnoTree;
/// Free space by length, then by block.
pub(crate) struct CntTree;
/// Inode chunks.
pub(crate) struct InoTree;
/// Inode chunks with free inodes.
pub(crate) struct FinoTree;
/// Reverse map.
pub(crate) struct RmapTree;
/// Reference counts of blocks that are shared or staged for copy on write.
pub(crate) struct RefcountTree;
/// The extent map of a fork.
pub(crate) struct BmapTree;
/// Reverse map of a realtime group.
pub(crate) struct RtRmapTree;
/// Reference counts of a realtime group.
pub(crate) struct RtRefcountTree;

/// A run of free blocks (`xfs_alloc_rec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeRun {
    pub(crate) start: AgBlock,
    /// Length in blocks.
    pub(crate) len: u32,
}

impl FreeRun {
    fn parse(bytes: &[u8]) -> Self {
        Self { start: AgBlock(be32(bytes, 0)), len: be32(bytes, 4) }
    }

    fn put(&self, bytes: &mut [u8]) {
        put32(bytes, 0, self.start.0);
        put32(bytes, 4, self.len);
    }
}

impl Tree for BnoTree {
    type Record = FreeRun;
    type Key = AgBlock;

    const SHAPE: TreeShape = TreeShape::BNO;
    const KIND: BlockKind = BlockKind::BnoBtree;

    fn record(bytes: &[u8]) -> FreeRun {
        FreeRun::parse(bytes)
    }

    fn put_record(record: &FreeRun, bytes: &mut [u8]) {
        record.put(bytes);
    }

    fn key(bytes: &[u8]) -> AgBlock {
        AgBlock(be32(bytes, 0))
    }
}

impl Tree for CntTree {
    type Record = FreeRun;
    /// Length and first block.
    type Key = (u32, AgBlock);

    const SHAPE: TreeShape = TreeShape::CNT;
    const KIND: BlockKind = BlockKind::CntBtree;

    fn record(bytes: &[u8]) -> FreeRun {
        FreeRun::parse(bytes)
    }

    fn put_record(record: &FreeRun, bytes: &mut [u8]) {
        record.put(bytes);
    }

    fn key(bytes: &[u8]) -> (u32, AgBlock) {
        (be32(bytes, 4), AgBlock(be32(bytes, 0)))
    }
}

/// A chunk of 64 inodes (`xfs_inobt_rec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeChunk {
    /// The first inode.
    pub(crate) start: AgIno,
    /// Mask of the groups of four inodes that have no blocks. 0 without sparse inodes.
    pub(crate) holemask: u16,
    /// Number of inodes that have blocks. 0 without sparse inodes, when all have.
    pub(crate) count: u8,
    /// Number of free inodes.
    pub(crate) freecount: u8,
    /// Mask of the free inodes, including those without blocks.
    pub(crate) free: u64,
}

impl InodeChunk {
    /// Returns the number of inodes that have blocks.
    pub(crate) fn inodes(&self) -> u32 {
        if self.count == 0 { INODES_PER_CHUNK } else { self.count.into() }
    }

    // Without sparse inodes the four bytes at offset 4 are the number of free inodes, at most 64. Parsed in the layout
    // with sparse inodes, the first two fields are then 0.
    fn parse(bytes: &[u8]) -> Self {
        Self {
            start: AgIno(be32(bytes, 0)),
            holemask: be16(bytes, 4),
            count: bytes[6],
            freecount: bytes[7],
            free: be64(bytes, 8),
        }
    }

    fn put(&self, bytes: &mut [u8]) {
        put32(bytes, 0, self.start.0);
        put16(bytes, 4, self.holemask);
        bytes[6] = self.count;
        bytes[7] = self.freecount;
        put64(bytes, 8, self.free);
    }
}

macro_rules! tree_of_chunks {
    ($tree:ty, $shape:ident, $kind:ident) => {
        impl Tree for $tree {
            type Record = InodeChunk;
            type Key = AgIno;

            const SHAPE: TreeShape = TreeShape::$shape;
            const KIND: BlockKind = BlockKind::$kind;

            fn record(bytes: &[u8]) -> InodeChunk {
                InodeChunk::parse(bytes)
            }

            fn put_record(record: &InodeChunk, bytes: &mut [u8]) {
                record.put(bytes);
            }

            fn key(bytes: &[u8]) -> AgIno {
                AgIno(be32(bytes, 0))
            }
        }
    };
}

tree_of_chunks!(InoTree, INO, InoBtree);
tree_of_chunks!(FinoTree, FINO, FinoBtree);

/// A run of blocks of one owner (`xfs_rmap_rec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RmapRecord {
    pub(crate) start: AgBlock,
    /// Length in blocks.
    pub(crate) len: u32,
    /// An inode, or one of [`rmap_owner`].
    pub(crate) owner: u64,
    /// The logical block of the first one in its fork, and flags of [`rmap_offset`].
    pub(crate) offset: u64,
}

/// Owners other than inodes (`XFS_RMAP_OWN_*`).
pub(crate) mod rmap_owner {
    /// Static headers of the file system.
    pub(crate) const FS: u64 = -3_i64 as u64;
    /// The log.
    pub(crate) const LOG: u64 = -4_i64 as u64;
    /// Free-space trees, reverse map and AGFL.
    pub(crate) const AG: u64 = -5_i64 as u64;
    /// Inode trees.
    pub(crate) const INOBT: u64 = -6_i64 as u64;
    /// Inode chunks.
    pub(crate) const INODES: u64 = -7_i64 as u64;
    /// The reference-count tree.
    pub(crate) const REFC: u64 = -8_i64 as u64;
    /// Blocks staged for copy on write.
    pub(crate) const COW: u64 = -9_i64 as u64;

    /// Returns whether an owner is not an inode (`XFS_RMAP_NON_INODE_OWNER`).
    pub(crate) const fn is_none_of_inodes(owner: u64) -> bool {
        owner >> 63 != 0
    }
}

/// Flags in the offset of a reverse-map record (`XFS_RMAP_OFF_*`).
pub(crate) mod rmap_offset {
    /// The fork is the attribute fork.
    pub(crate) const ATTR_FORK: u64 = 1 << 63;
    /// A block of the tree that maps the fork; it has no logical block.
    pub(crate) const BMBT_BLOCK: u64 = 1 << 62;
    /// The blocks are unwritten.
    pub(crate) const UNWRITTEN: u64 = 1 << 61;
    /// The logical block.
    pub(crate) const MASK: u64 = (1 << 54) - 1;
}

/// Sort key of reverse-map records. It does not include the unwritten flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RmapKey {
    pub(crate) start: AgBlock,
    pub(crate) owner: u64,
    pub(crate) offset: u64,
}

impl RmapRecord {
    /// Returns its key.
    pub(crate) fn key(&self) -> RmapKey {
        let offset = self.offset & !rmap_offset::UNWRITTEN;
        RmapKey { start: self.start, owner: self.owner, offset }
    }

    /// Returns one past its last block.
    pub(crate) fn end(&self) -> u64 {
        u64::from(self.start.0) + u64::from(self.len)
    }

    /// Returns whether it has logical block numbers, which increase with the blocks.
    pub(crate) fn has_offsets(&self) -> bool {
        !rmap_owner::is_none_of_inodes(self.owner) && self.offset & rmap_offset::BMBT_BLOCK == 0
    }
}

impl Tree for RmapTree {
    type Record = RmapRecord;
    type Key = RmapKey;

    const SHAPE: TreeShape = TreeShape::RMAP;
    const KIND: BlockKind = BlockKind::RmapBtree;
    const OVERLAPS: bool = true;

    fn record(bytes: &[u8]) -> RmapRecord {
        RmapRecord {
            start: AgBlock(be32(bytes, 0)),
            len: be32(bytes, 4),
            owner: be64(bytes, 8),
            offset: be64(bytes, 16),
        }
    }

    fn put_record(record: &RmapRecord, bytes: &mut [u8]) {
        put32(bytes, 0, record.start.0);
        put32(bytes, 4, record.len);
        put64(bytes, 8, record.owner);
        put64(bytes, 16, record.offset);
    }

    fn key(bytes: &[u8]) -> RmapKey {
        let offset = be64(bytes, 12) & !rmap_offset::UNWRITTEN;
        RmapKey { start: AgBlock(be32(bytes, 0)), owner: be64(bytes, 4), offset }
    }

    fn key_in_record(bytes: &[u8]) -> RmapKey {
        Self::record(bytes).key()
    }

    fn put_key(key: &RmapKey, bytes: &mut [u8]) {
        put32(bytes, 0, key.start.0);
        put64(bytes, 4, key.owner);
        put64(bytes, 12, key.offset);
    }

    fn put_low_key(record: &[u8], bytes: &mut [u8]) {
        Self::put_key(&Self::key_in_record(record), bytes);
    }

    fn high_key_of(record: &RmapRecord) -> RmapKey {
        let mut key = record.key();
        let last = record.len.wrapping_sub(1);
        key.start = AgBlock(key.start.0.wrapping_add(last));
        if record.has_offsets() {
            let flags = key.offset & !rmap_offset::MASK;
            let offset = (key.offset & rmap_offset::MASK).wrapping_add(last.into());
            key.offset = flags | offset & rmap_offset::MASK;
        }
        key
    }
}

/// Reference count of a run of blocks (`xfs_refcount_rec`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefcountRecord {
    pub(crate) start: AgBlock,
    /// True if they are staged for copy on write; such records sort after all others.
    pub(crate) cow: bool,
    /// Length in blocks.
    pub(crate) len: u32,
    /// Number of references: at least 2 for shared blocks, 1 for staged ones.
    pub(crate) count: u32,
}

/// Flag in the first block of a record staged for copy on write (`XFS_REFC_COWFLAG`).
const REFCOUNT_COW: u32 = 1 << 31;

impl Tree for RefcountTree {
    type Record = RefcountRecord;
    /// The flag for blocks staged for copy on write, and the block.
    type Key = (bool, AgBlock);

    const SHAPE: TreeShape = TreeShape::REFCOUNT;
    const KIND: BlockKind = BlockKind::RefcountBtree;

    fn record(bytes: &[u8]) -> RefcountRecord {
        let (cow, start) = Self::key(bytes);
        RefcountRecord { start, cow, len: be32(bytes, 4), count: be32(bytes, 8) }
    }

    fn put_record(record: &RefcountRecord, bytes: &mut [u8]) {
        put32(bytes, 0, record.start.0 | if record.cow { REFCOUNT_COW } else { 0 });
        put32(bytes, 4, record.len);
        put32(bytes, 8, record.count);
    }

    fn key(bytes: &[u8]) -> (bool, AgBlock) {
        let start = be32(bytes, 0);
        (start & REFCOUNT_COW != 0, AgBlock(start & !REFCOUNT_COW))
    }
}

impl Tree for BmapTree {
    type Record = Extent;
    type Key = FileBlock;

    const SHAPE: TreeShape = TreeShape::BMBT;
    const KIND: BlockKind = BlockKind::Bmbt;

    fn record(bytes: &[u8]) -> Extent {
        Extent::parse(bytes)
    }

    fn put_record(record: &Extent, bytes: &mut [u8]) {
        record.put(bytes);
    }

    fn key(bytes: &[u8]) -> FileBlock {
        FileBlock(be64(bytes, 0))
    }

    fn key_in_record(bytes: &[u8]) -> FileBlock {
        offset_of(bytes)
    }

    fn put_low_key(record: &[u8], bytes: &mut [u8]) {
        put64(bytes, 0, offset_of(record).0);
    }
}

macro_rules! tree_of_realtime_group {
    ($tree:ty, $like:ty, $record:ty, $key:ty, $shape:ident, $kind:ident, $overlaps:literal) => {
        impl Tree for $tree {
            type Record = $record;
            type Key = $key;

            const SHAPE: TreeShape = TreeShape::$shape;
            const KIND: BlockKind = BlockKind::$kind;
            const OVERLAPS: bool = $overlaps;

            fn record(bytes: &[u8]) -> $record {
                <$like>::record(bytes)
            }

            fn put_record(record: &$record, bytes: &mut [u8]) {
                <$like>::put_record(record, bytes);
            }

            fn key(bytes: &[u8]) -> $key {
                <$like>::key(bytes)
            }

            fn key_in_record(bytes: &[u8]) -> $key {
                <$like>::key_in_record(bytes)
            }

            fn put_key(key: &$key, bytes: &mut [u8]) {
                <$like>::put_key(key, bytes);
            }

            fn put_low_key(record: &[u8], bytes: &mut [u8]) {
                <$like>::put_low_key(record, bytes);
            }

            fn high_key_of(record: &$record) -> $key {
                <$like>::high_key_of(record)
            }
        }
    };
}

tree_of_realtime_group!(RtRmapTree, RmapTree, RmapRecord, RmapKey, RTRMAP, RtRmapBtree, true);
tree_of_realtime_group!(
    RtRefcountTree,
    RefcountTree,
    RefcountRecord,
    (bool, AgBlock),
    RTREFCOUNT,
    RtRefcountBtree,
    false
);
