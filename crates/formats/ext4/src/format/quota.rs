//! Quota files: a header, and a tree that maps an id to its limits and usage.
//!
//! Source: the description of the format vfsv1 in quota-tools, and files made by mke2fs. A file consists of blocks of 1
//! KiB, independent of the file system's block size. Block 0 contains the header and [`Info`]. Block 1 is the root of a
//! tree of four levels; each level is indexed by 8 bits of the id, highest bits first. A node has 256 block numbers, 0
//! for none. Below the last level are leaves with a header (`LeafHeader`) and `ENTRIES_PER_BLOCK` entries in any
//! order. An entry of zeros is unused.

use std::ops::Range;

use engine::Corruption;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Size of a block of a quota file in bytes.
pub(crate) const BLOCK_SIZE: usize = 1024;
/// Base-2 logarithm of [`BLOCK_SIZE`].
pub(crate) const BLOCK_SIZE_LOG: u32 = 10;
/// Binary logarithm of the unit of limits of space, in bytes.
pub(crate) const LIMIT_UNIT_LOG: u32 = 10;
/// Block of the header.
pub(crate) const INFO_BLOCK: u32 = 0;
/// Root block of the tree.
pub(crate) const ROOT_BLOCK: u32 = 1;
/// Number of levels of the tree above the leaves.
pub(crate) const TREE_DEPTH: u32 = 4;
/// Number of entries of a leaf.
pub(crate) const ENTRIES_PER_BLOCK: usize =
    (BLOCK_SIZE - size_of::<LeafHeader>()) / size_of::<DiskQuota>();

/// Version number of `vfsv1`.
const VERSION: u32 = 1;

/// Kind of owner whose usage a file counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaKind {
    /// Usage by user.
    User,
    /// Usage by group.
    Group,
    /// Usage by project.
    Project,
}

impl QuotaKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }
}

/// Start of block 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Info {
    magic: U32,
    version: U32,
    pub(crate) block_grace: U32,
    pub(crate) inode_grace: U32,
    flags: U32,
    /// Number of blocks of the file.
    pub blocks: U32,
    /// First free block; its header contains the next. 0 for none.
    pub free_block: U32,
    /// First leaf with room for an entry; its header contains the next. 0 for none.
    pub free_leaf: U32,
}

/// Header of a leaf.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LeafHeader {
    /// Next leaf with room, or next free block; 0 for none.
    pub next_free: U32,
    /// Previous leaf with room; 0 for none.
    pub prev_free: U32,
    /// Number of entries in use.
    pub entries: U16,
    padding: U16,
    reserved: U32,
}

/// Limits and usage of one id.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiskQuota {
    /// The id.
    pub id: U32,
    padding: U32,
    pub(crate) inodes_hard: U64,
    pub(crate) inodes_soft: U64,
    /// Number of inodes in use.
    pub inodes: U64,
    pub(crate) blocks_hard: U64,
    pub(crate) blocks_soft: U64,
    /// Number of bytes in use.
    pub space: U64,
    pub(crate) block_time: U64,
    pub(crate) inode_time: U64,
}

const _: () = assert!(size_of::<Info>() == 32);
const _: () = assert!(size_of::<LeafHeader>() == 16);
const _: () = assert!(size_of::<DiskQuota>() == 72);
const _: () = assert!(std::mem::offset_of!(DiskQuota, inodes) == 24);
const _: () = assert!(std::mem::offset_of!(DiskQuota, space) == 48);
const _: () = assert!(ENTRIES_PER_BLOCK == 14);

/// Default grace period for exceeding a soft limit, in seconds: one week.
const GRACE_DEFAULT: u32 = 7 * 24 * 3600;

impl Info {
    /// Returns the header of a file of `blocks` blocks, where `free_leaf` is the leaf with room. Times and flags are
    /// taken from `before` if given.
    #[must_use]
    pub(crate) fn new(kind: QuotaKind, blocks: u32, free_leaf: u32, before: Option<&Self>) -> Self {
        let grace = |time: Option<U32>| time.unwrap_or_else(|| GRACE_DEFAULT.into());
        Self {
            magic: kind.magic().into(),
            version: VERSION.into(),
            block_grace: grace(before.map(|info| info.block_grace)),
            inode_grace: grace(before.map(|info| info.inode_grace)),
            flags: before.map_or_else(|| 0.into(), |info| info.flags),
            blocks: blocks.into(),
            free_block: 0.into(),
            free_leaf: free_leaf.into(),
        }
    }
}

impl DiskQuota {
    /// Returns whether it has any limit.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        let limits = [self.inodes_hard, self.inodes_soft, self.blocks_hard, self.blocks_soft];
        limits.iter().any(|limit| limit.get() != 0)
    }

    /// Returns an entry without limits or usage.
    #[must_use]
    pub(crate) fn new(id: u32) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// Returns the entry at byte `offset` of a block; `None` past its end.
    #[must_use]
    pub(crate) fn at(block: &[u8], offset: usize) -> Option<Self> {
        Self::read_from_prefix(block.get(offset..)?).ok().map(|(entry, _)| entry)
    }

    /// Returns whether this entry is unused.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.as_bytes().iter().all(|&byte| byte == 0)
    }

    /// Returns the entry in the form to store. The entry of id 0 without usage would look unused, so it gets a nonzero
    /// time, which has no effect.
    #[must_use]
    pub(crate) fn stored(mut self) -> Self {
        if self.is_none() {
            self.inode_time = 1.into();
        }
        self
    }
}

/// Returns the byte range of entry `index` in a leaf.
#[must_use]
pub(crate) fn entry_range(index: usize) -> Range<usize> {
    let start = size_of::<LeafHeader>() + index * size_of::<DiskQuota>();
    start..start + size_of::<DiskQuota>()
}

/// Byte range of a leaf's header.
pub(crate) const HEADER_RANGE: Range<usize> = 0..size_of::<LeafHeader>();

/// Byte range of [`Info`] in its block.
pub(crate) const INFO_RANGE: Range<usize> = 0..size_of::<Info>();

/// Returns the byte range of the block number for `id` in a node of `level` (0 is the root).
#[must_use]
pub(crate) fn reference_range(level: u32, id: u32) -> Range<usize> {
    let index = (id >> (8 * (TREE_DEPTH - 1 - level)) & 0xff) as usize;
    index * 4..index * 4 + 4
}

/// Parses block 0 of a file of `size` bytes.
///
/// # Errors
/// A wrong magic number or version, or a number of blocks that is too small for a tree or larger than the file.
pub fn parse_info(block: &[u8], kind: QuotaKind, size: u64) -> Result<Info, Corruption> {
    let Ok((info, _)) = Info::read_from_prefix(block) else {
        return Err(Corruption::new("quota file", "truncated"));
    };
    if info.magic.get() != kind.magic() {
        let found = format!("{:#010x}", info.magic.get());
        let damage = Corruption::new("quota file", "magic number");
        return Err(damage.mismatch(format!("{:#010x}", kind.magic()), found));
    }
    if info.version.get() != VERSION {
        let damage = Corruption::new("quota file", "version");
        return Err(damage.mismatch(VERSION, info.version.get()));
    }
    let (blocks, blocks_max) = (u64::from(info.blocks.get()), size >> BLOCK_SIZE_LOG);
    if blocks <= ROOT_BLOCK.into() || blocks > blocks_max {
        let damage = Corruption::new("quota file", "number of blocks");
        return Err(damage.mismatch(format!("2 to {blocks_max}"), blocks));
    }
    Ok(info)
}

/// Verifies a block of a quota file before it is written. Quota files have at most `blocks_max` blocks. Only the first
/// block of a file identifies itself. Any other block must be valid as a node of the tree or as a leaf, which includes
/// free blocks.
///
/// # Errors
/// Invalid block numbers, a wrong version, or a wrong number of entries.
pub fn verify_structure(block: &[u8], blocks_max: u64) -> Result<(), Corruption> {
    let bad = |problem| Corruption::new("quota file", problem);
    let Ok((info, _)) = Info::read_from_prefix(block) else { return Err(bad("truncated")) };
    if QuotaKind::ALL.iter().any(|kind| kind.magic() == info.magic.get()) {
        let blocks = info.blocks.get();
        if info.version.get() != VERSION {
            return Err(bad("version").mismatch(VERSION, info.version.get()));
        }
        if blocks <= ROOT_BLOCK || u64::from(blocks) > blocks_max {
            let expected = format!("2 to {blocks_max}");
            return Err(bad("number of blocks").mismatch(expected, blocks));
        }
        let free = info.free_block.get().max(info.free_leaf.get());
        if free >= blocks {
            let expected = format!("below {blocks}");
            return Err(bad("a free block past the last one").mismatch(expected, free));
        }
        return Ok(());
    }
    let is_outside = |&block: &u32| u64::from(block) >= blocks_max || block == ROOT_BLOCK;
    let Some(outside) = references(block).find(is_outside) else { return Ok(()) };
    let header = leaf_header(block);
    let links = [header.next_free.get(), header.prev_free.get()];
    let entries = (0..ENTRIES_PER_BLOCK).filter_map(|index| entry_at(block, index));
    let used = entries.filter(|entry| !entry.is_none()).count();
    if links.iter().any(is_outside) {
        let expected = format!("below {blocks_max}");
        return Err(
            bad("neither node nor leaf: a pointer is outside the file").mismatch(expected, outside)
        );
    }
    if usize::from(header.entries.get()) != used {
        let found = header.entries.get();
        return Err(bad("number of entries in a leaf").mismatch(used, found));
    }
    Ok(())
}

/// Returns the entry at `index` of a leaf; `None` past its end.
#[must_use]
pub fn entry_at(leaf: &[u8], index: usize) -> Option<DiskQuota> {
    if index < ENTRIES_PER_BLOCK { DiskQuota::at(leaf, entry_range(index).start) } else { None }
}

/// Returns the header of a leaf or of a free block.
#[must_use]
pub fn leaf_header(leaf: &[u8]) -> LeafHeader {
    LeafHeader::read_from_prefix(leaf).map_or_else(|_| LeafHeader::default(), |(header, _)| header)
}

/// Iterates over the 256 block numbers of a node.
pub fn references(node: &[u8]) -> impl Iterator<Item = u32> {
    node.chunks_exact(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_lead_down_byte_by_byte() {
        let path: Vec<_> = (0..TREE_DEPTH).map(|l| reference_range(l, 0x0102_03ff).start).collect();
        assert_eq!(path, [4, 8, 12, 255 * 4]);
    }

    #[test]
    fn the_entry_of_id_0_is_never_taken_for_none() {
        assert!(DiskQuota::new(0).is_none() && !DiskQuota::new(1).is_none());
        assert!(!DiskQuota::new(0).stored().is_none());
        assert_eq!(DiskQuota::new(5).stored().inode_time.get(), 0);
        assert_eq!(entry_range(ENTRIES_PER_BLOCK - 1).end, BLOCK_SIZE);
    }

    #[test]
    fn only_files_of_their_kind_are_read() {
        let mut block = [0; BLOCK_SIZE];
        block[..8].copy_from_slice(&[0x11, 0x1f, 0xc0, 0xd9, 1, 0, 0, 0]);
        block[20] = 6;
        assert!(parse_info(&block, QuotaKind::User, 6144).is_ok());
        assert!(parse_info(&block, QuotaKind::User, 6143).is_err());
        assert!(parse_info(&block, QuotaKind::Group, 6144).is_err());
        block[20] = 1;
        assert!(parse_info(&block, QuotaKind::User, 6144).is_err());
        block[4] = 0;
        assert!(parse_info(&block, QuotaKind::User, 6144).is_err());
    }
}
