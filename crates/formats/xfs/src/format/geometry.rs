//! Locations of structures, computed from the superblock's fields.

use vfs::Ino;

use super::address::{AgBlock, AgIno, AgNumber, Block, FsBlock};
use super::features::{Features, Incompat, Version};
use super::realtime::Realtime;
use super::superblock::Superblock;

/// Size of the daddr unit as a power of two: the unit of locations in block headers.
pub(crate) const DADDR_BYTES_LOG: u8 = 9;
/// Number of inodes of a chunk (`XFS_INODES_PER_CHUNK`).
pub(crate) const INODES_PER_CHUNK: u32 = 64;
/// Number of header sectors of a group: superblock, AGF, AGI and AGFL.
const HEADER_SECTORS: u32 = 4;

/// Sizes and features of a file system. All fields were checked by [`Superblock::parse`].
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Features.
    pub features: Features,
    /// The UUID in metadata.
    pub meta_uuid: [u8; 16],
    /// Block size as a power of two.
    pub block_log: u8,
    /// Sector size as a power of two.
    pub sector_log: u8,
    /// Inode size as a power of two.
    pub inode_log: u8,
    /// Directory block size as a power of two.
    pub dir_block_log: u8,
    /// Number of bits of the block number in an [`FsBlock`].
    pub ag_block_log: u8,
    /// Number of blocks of an allocation group (the last may have fewer).
    pub ag_blocks: u32,
    /// Number of allocation groups.
    pub ag_count: u32,
    /// Total number of blocks.
    pub blocks: u64,
    /// Alignment of inode chunks in blocks (`sb_inoalignmt`); 0 if not aligned.
    pub inode_align: u32,
    /// Alignment of sparse inode chunks in blocks (`sb_spino_align`); 0 if there are none.
    pub sparse_align: u32,
    /// The realtime section; `None` if there is none, or if its fields in the superblock are invalid.
    pub realtime: Option<Realtime>,
}

/// Size of a cluster of inodes of 256 bytes, in bytes (`XFS_INODE_BIG_CLUSTER_SIZE`).
pub(crate) const INODE_CLUSTER_BYTES: u32 = 8192;

impl Geometry {
    /// Returns the geometry of the realtime device, with the groups of its section as allocation groups. `None` without
    /// groups.
    #[must_use]
    pub(crate) fn of_realtime_device(&self) -> Option<Self> {
        let realtime = self.realtime?;
        Some(Self {
            ag_block_log: realtime.group_block_log()?,
            ag_blocks: realtime.group_blocks(),
            ag_count: realtime.groups(),
            blocks: realtime.extents() * u64::from(realtime.extent_blocks()),
            realtime: None,
            ..*self
        })
    }

    /// Returns the geometry described by a superblock.
    pub fn new(sb: &Superblock) -> Self {
        let raw = &sb.raw;
        let has_meta_uuid = sb.features.incompat(Incompat::META_UUID);
        let has_align = sb.features.version_bits.contains(Version::ALIGN);
        let has_sparse = sb.features.incompat(Incompat::SPINODES);
        Self {
            features: sb.features,
            meta_uuid: if has_meta_uuid { raw.meta_uuid } else { raw.uuid },
            block_log: raw.blocklog,
            sector_log: raw.sectlog,
            inode_log: raw.inodelog,
            dir_block_log: raw.blocklog + raw.dirblklog,
            ag_block_log: raw.agblklog,
            ag_blocks: raw.agblocks.get(),
            ag_count: raw.agcount.get(),
            blocks: raw.dblocks.get(),
            inode_align: if has_align { raw.inoalignmt.get() } else { 0 },
            sparse_align: if has_sparse { raw.spino_align.get() } else { 0 },
            realtime: Realtime::of(sb).ok().flatten(),
        }
    }

    /// Returns the block size in bytes.
    pub const fn block_size(&self) -> usize {
        1 << self.block_log
    }

    /// Returns the inode size in bytes.
    pub const fn inode_size(&self) -> usize {
        1 << self.inode_log
    }

    /// Returns the sector size in bytes.
    pub const fn sector_size(&self) -> usize {
        1 << self.sector_log
    }

    /// Returns the directory block size in bytes.
    pub const fn dir_block_size(&self) -> usize {
        1 << self.dir_block_log
    }

    /// Returns the number of file-system blocks of a directory block.
    pub(crate) const fn dir_block_blocks(&self) -> u32 {
        1 << (self.dir_block_log - self.block_log)
    }

    /// Returns the number of inodes in a block, as a power of two.
    pub const fn inodes_per_block_log(&self) -> u8 {
        self.block_log - self.inode_log
    }

    /// Returns all allocation groups.
    pub fn ags(&self) -> impl Iterator<Item = AgNumber> + use<> {
        (0..self.ag_count).map(AgNumber)
    }

    /// Returns the number of blocks of a group.
    pub fn ag_len(&self, ag: AgNumber) -> u32 {
        let start = u64::from(ag.0) * u64::from(self.ag_blocks);
        (self.blocks.saturating_sub(start)).min(u64::from(self.ag_blocks)) as u32
    }

    /// Returns the device block of a block of a group. The group and block must be in range.
    pub fn block_of(&self, ag: AgNumber, block: AgBlock) -> Block {
        Block(u64::from(ag.0) * u64::from(self.ag_blocks) + u64::from(block.0))
    }

    /// Returns the address of a block of a group, as in extent maps.
    pub const fn fs_block(&self, ag: AgNumber, block: AgBlock) -> FsBlock {
        FsBlock((ag.0 as u64) << self.ag_block_log | block.0 as u64)
    }

    /// Returns the group and block of an address, which need not exist.
    pub(crate) const fn split(&self, block: FsBlock) -> (AgNumber, AgBlock) {
        let ag = block.0 >> self.ag_block_log;
        let ag = if ag > u32::MAX as u64 { u32::MAX } else { ag as u32 };
        (AgNumber(ag), AgBlock((block.0 & ((1 << self.ag_block_log) - 1)) as u32))
    }

    /// Returns the device block of an address that was checked by `Geometry::contains`.
    pub fn device_block(&self, block: FsBlock) -> Block {
        let (ag, block) = self.split(block);
        self.block_of(ag, block)
    }

    /// Returns the group and block of a device block.
    pub fn locate(&self, block: Block) -> (AgNumber, AgBlock) {
        let ag_blocks = u64::from(self.ag_blocks);
        (AgNumber((block.0 / ag_blocks) as u32), AgBlock((block.0 % ag_blocks) as u32))
    }

    /// Returns whether `len` blocks from `start` on are within one group.
    pub(crate) fn contains(&self, start: FsBlock, len: u64) -> bool {
        let (ag, block) = self.split(start);
        ag.0 < self.ag_count
            && u64::from(block.0) + len <= u64::from(self.ag_len(ag))
            && len <= u64::from(self.ag_blocks)
    }

    /// Returns the byte offset of a block on the device.
    pub const fn byte_of(&self, block: Block) -> u64 {
        block.0 << self.block_log
    }

    /// Returns a block's location as in its header, in units of 512 bytes.
    pub(crate) const fn daddr(&self, block: Block) -> u64 {
        block.0 << (self.block_log - DADDR_BYTES_LOG)
    }

    /// Returns the number of an inode of a group.
    pub const fn ino(&self, ag: AgNumber, ino: AgIno) -> Ino {
        Ino((ag.0 as u64) << (self.ag_block_log + self.inodes_per_block_log()) | ino.0 as u64)
    }

    /// Returns the last block of a group with headers.
    pub(crate) const fn headers_end(&self) -> AgBlock {
        AgBlock(((HEADER_SECTORS << self.sector_log) - 1) >> self.block_log)
    }

    /// Returns the group of an inode and its number in the group, or `None` if the number is invalid. Blocks with
    /// headers contain no inodes.
    pub fn split_ino(&self, ino: Ino) -> Option<(AgNumber, AgIno)> {
        let bits = self.ag_block_log + self.inodes_per_block_log();
        let ag = u32::try_from(ino.0 >> bits).ok().filter(|ag| *ag < self.ag_count)?;
        let ag_ino = u32::try_from(ino.0 & ((1 << bits) - 1)).ok()?;
        let block = ag_ino >> self.inodes_per_block_log();
        let is_within = block > self.headers_end().0 && block < self.ag_len(AgNumber(ag));
        is_within.then_some((AgNumber(ag), AgIno(ag_ino)))
    }

    /// Returns the block within its group that contains an inode, and the inode's byte offset in the block.
    pub const fn inode_place(&self, ino: AgIno) -> (AgBlock, usize) {
        let per_block = self.inodes_per_block_log();
        let index = ino.0 & ((1 << per_block) - 1);
        (AgBlock(ino.0 >> per_block), (index as usize) << self.inode_log)
    }

    /// Returns the first inode of a block of a group.
    pub const fn first_ino(&self, block: AgBlock) -> AgIno {
        AgIno(block.0 << self.inodes_per_block_log())
    }

    /// Returns the number of blocks of a cluster, the unit in which kernels read and write inodes. Larger inodes have
    /// larger clusters if chunks are aligned to them.
    pub(crate) const fn kernel_cluster_blocks(&self) -> u32 {
        let scaled = (INODE_CLUSTER_BYTES as u64) << self.inode_log >> 8;
        let is_scaled =
            self.features.crc() && (self.inode_align as u64) << self.block_log >= scaled;
        let bytes = if is_scaled { scaled } else { INODE_CLUSTER_BYTES as u64 };
        let blocks = (bytes >> self.block_log) as u32;
        if blocks == 0 { 1 } else { blocks }
    }

    /// Returns the number of blocks of a cluster, if every chunk consists of whole, aligned clusters; otherwise 1.
    pub(crate) const fn cluster_blocks(&self) -> u32 {
        let blocks = self.kernel_cluster_blocks();
        let is_aligned = self.inode_align > 0 && self.inode_align.is_multiple_of(blocks);
        if is_aligned && self.chunk_blocks().is_multiple_of(blocks) { blocks } else { 1 }
    }

    /// Returns whether a cluster may be a sparse chunk, so that kernels accept the creation of a single cluster.
    pub(crate) const fn has_sparse_clusters(&self) -> bool {
        self.sparse_align > 0 && self.sparse_align == self.cluster_blocks()
    }

    /// Returns the number of blocks of a chunk of 64 inodes; 1 if a block contains more.
    pub(crate) const fn chunk_blocks(&self) -> u32 {
        let per_block_log = self.inodes_per_block_log();
        if per_block_log >= 6 { 1 } else { INODES_PER_CHUNK >> per_block_log }
    }
}
