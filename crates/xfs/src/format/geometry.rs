//! Where things are: arithmetic over the superblock's numbers.

use vfs::Ino;

use super::address::{AgBlock, AgIno, AgNumber, Block, FsBlock};
use super::features::{Features, Incompat, Version};
use super::superblock::Superblock;

/// Size of the daddr unit in bytes: what block headers count their own place in.
pub const DADDR_BYTES_LOG: u8 = 9;
/// Inodes of a chunk (`XFS_INODES_PER_CHUNK`).
pub const INODES_PER_CHUNK: u32 = 64;
/// Sectors at the start of a group: superblock, AGF, AGI and AGFL.
const HEADER_SECTORS: u32 = 4;

/// What every part of a file system knows of its shape. All numbers were checked by
/// [`Superblock::parse`].
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Features.
    pub features: Features,
    /// The uuid that metadata bears.
    pub meta_uuid: [u8; 16],
    /// Block size as a power of two.
    pub block_log: u8,
    /// Sector size as a power of two.
    pub sector_log: u8,
    /// Inode size as a power of two.
    pub inode_log: u8,
    /// Directory block size as a power of two.
    pub dir_block_log: u8,
    /// Bits of the block number in an [`FsBlock`].
    pub ag_block_log: u8,
    /// Blocks of an allocation group (the last may have fewer).
    pub ag_blocks: u32,
    /// Allocation groups.
    pub ag_count: u32,
    /// All blocks.
    pub blocks: u64,
    /// What the first block of a chunk of inodes is a multiple of (`sb_inoalignmt`); 0 if of nothing.
    pub inode_align: u32,
    /// The same of a sparse chunk (`sb_spino_align`); 0 if there are none.
    pub sparse_align: u32,
}

/// Bytes of a cluster of inodes of 256 bytes (`XFS_INODE_BIG_CLUSTER_SIZE`).
pub const INODE_CLUSTER_BYTES: u32 = 8192;

impl Geometry {
    /// The shape that a superblock describes.
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
        }
    }

    /// Block size in bytes.
    pub const fn block_size(&self) -> usize {
        1 << self.block_log
    }

    /// Inode size in bytes.
    pub const fn inode_size(&self) -> usize {
        1 << self.inode_log
    }

    /// Sector size in bytes.
    pub const fn sector_size(&self) -> usize {
        1 << self.sector_log
    }

    /// Directory block size in bytes.
    pub const fn dir_block_size(&self) -> usize {
        1 << self.dir_block_log
    }

    /// File-system blocks of a directory block.
    pub const fn dir_block_blocks(&self) -> u32 {
        1 << (self.dir_block_log - self.block_log)
    }

    /// Inodes in a block, as a power of two.
    pub const fn inodes_per_block_log(&self) -> u8 {
        self.block_log - self.inode_log
    }

    /// All allocation groups.
    pub fn ags(&self) -> impl Iterator<Item = AgNumber> + use<> {
        (0..self.ag_count).map(AgNumber)
    }

    /// Blocks of a group.
    pub fn ag_len(&self, ag: AgNumber) -> u32 {
        let start = u64::from(ag.0) * u64::from(self.ag_blocks);
        (self.blocks.saturating_sub(start)).min(u64::from(self.ag_blocks)) as u32
    }

    /// The device's block of a block of a group. The group and block must be in range.
    pub fn block_of(&self, ag: AgNumber, block: AgBlock) -> Block {
        Block(u64::from(ag.0) * u64::from(self.ag_blocks) + u64::from(block.0))
    }

    /// A block of a group, as files' maps name it.
    pub const fn fs_block(&self, ag: AgNumber, block: AgBlock) -> FsBlock {
        FsBlock((ag.0 as u64) << self.ag_block_log | block.0 as u64)
    }

    /// Group and block that an address stands for, whether there is such a block or not.
    pub const fn split(&self, block: FsBlock) -> (AgNumber, AgBlock) {
        let ag = block.0 >> self.ag_block_log;
        let ag = if ag > u32::MAX as u64 { u32::MAX } else { ag as u32 };
        (AgNumber(ag), AgBlock((block.0 & ((1 << self.ag_block_log) - 1)) as u32))
    }

    /// The device's block of an address that was checked by [`Geometry::contains`].
    pub fn device_block(&self, block: FsBlock) -> Block {
        let (ag, block) = self.split(block);
        self.block_of(ag, block)
    }

    /// Group and block of a block of the device.
    pub fn locate(&self, block: Block) -> (AgNumber, AgBlock) {
        let ag_blocks = u64::from(self.ag_blocks);
        (AgNumber((block.0 / ag_blocks) as u32), AgBlock((block.0 % ag_blocks) as u32))
    }

    /// Whether `len` blocks from `start` on lie in one group.
    pub fn contains(&self, start: FsBlock, len: u64) -> bool {
        let (ag, block) = self.split(start);
        ag.0 < self.ag_count
            && u64::from(block.0) + len <= u64::from(self.ag_len(ag))
            && len <= u64::from(self.ag_blocks)
    }

    /// The first byte of a block on the device.
    pub const fn byte_of(&self, block: Block) -> u64 {
        block.0 << self.block_log
    }

    /// A block's place as its header states it, in units of 512 bytes.
    pub const fn daddr(&self, block: Block) -> u64 {
        block.0 << (self.block_log - DADDR_BYTES_LOG)
    }

    /// The inode of a group by its number within it.
    pub const fn ino(&self, ag: AgNumber, ino: AgIno) -> Ino {
        Ino((ag.0 as u64) << (self.ag_block_log + self.inodes_per_block_log()) | ino.0 as u64)
    }

    /// The last block of a group that its headers take.
    pub const fn headers_end(&self) -> AgBlock {
        AgBlock(((HEADER_SECTORS << self.sector_log) - 1) >> self.block_log)
    }

    /// Group of an inode and its number there, or `None` if no such inode can be: none lies among the headers.
    pub fn split_ino(&self, ino: Ino) -> Option<(AgNumber, AgIno)> {
        let bits = self.ag_block_log + self.inodes_per_block_log();
        let ag = u32::try_from(ino.0 >> bits).ok().filter(|ag| *ag < self.ag_count)?;
        let ag_ino = u32::try_from(ino.0 & ((1 << bits) - 1)).ok()?;
        let block = ag_ino >> self.inodes_per_block_log();
        let is_within = block > self.headers_end().0 && block < self.ag_len(AgNumber(ag));
        is_within.then_some((AgNumber(ag), AgIno(ag_ino)))
    }

    /// The block within its group that holds an inode, and the inode's first byte there.
    pub const fn inode_place(&self, ino: AgIno) -> (AgBlock, usize) {
        let per_block = self.inodes_per_block_log();
        let index = ino.0 & ((1 << per_block) - 1);
        (AgBlock(ino.0 >> per_block), (index as usize) << self.inode_log)
    }

    /// The first inode of a block of a group.
    pub const fn first_ino(&self, block: AgBlock) -> AgIno {
        AgIno(block.0 << self.inodes_per_block_log())
    }

    /// Blocks of a cluster, in which kernels read and write inodes. Larger inodes have larger clusters where
    /// chunks are aligned to them.
    pub const fn kernel_cluster_blocks(&self) -> u32 {
        let scaled = (INODE_CLUSTER_BYTES as u64) << self.inode_log >> 8;
        let is_scaled =
            self.features.crc() && (self.inode_align as u64) << self.block_log >= scaled;
        let bytes = if is_scaled { scaled } else { INODE_CLUSTER_BYTES as u64 };
        let blocks = (bytes >> self.block_log) as u32;
        if blocks == 0 { 1 } else { blocks }
    }

    /// Blocks of a cluster, if every chunk is made of whole ones that begin at a multiple of their size; else 1.
    pub const fn cluster_blocks(&self) -> u32 {
        let blocks = self.kernel_cluster_blocks();
        let is_aligned = self.inode_align > 0 && self.inode_align.is_multiple_of(blocks);
        if is_aligned && self.chunk_blocks().is_multiple_of(blocks) { blocks } else { 1 }
    }

    /// Whether a cluster may be a sparse chunk, so that kernels take it for one that was made by itself.
    pub const fn has_sparse_clusters(&self) -> bool {
        self.sparse_align > 0 && self.sparse_align == self.cluster_blocks()
    }

    /// Blocks that a chunk of 64 inodes takes; 1 where a block holds more.
    pub const fn chunk_blocks(&self) -> u32 {
        let per_block_log = self.inodes_per_block_log();
        if per_block_log >= 6 { 1 } else { INODES_PER_CHUNK >> per_block_log }
    }
}
