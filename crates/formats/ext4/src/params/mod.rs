//! Constant parameters of an open file system: its superblock as it was read, its geometry and the consequences of its
//! features.

use disk::BlockDevice;
use engine::Corruption;

use crate::format::address::Block;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::hash::{HashParameters, HashVersion, NameHasher};
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

pub(crate) mod clock;

/// Default hash version, as in mke2fs.
const HALF_MD4: u8 = 1;

/// `EXT4_ENC_STRICT_MODE_FL`: encoding flag to reject invalid names.
const ENCODING_STRICT: u16 = 1;

/// Parameters of a file system.
pub(crate) struct Params {
    pub(crate) sb: Superblock,
    pub(crate) geometry: Geometry,
    /// True if metadata has checksums (`metadata_csum`).
    pub(crate) checksums: bool,
    /// True if directory entries contain the file type.
    pub(crate) filetype: bool,
    /// True if new files get extent trees.
    pub(crate) extents: bool,
    /// True if files may use more than 2^32 - 1 units of 512 bytes.
    pub(crate) huge_file: bool,
    /// True if files may have 2 GiB or more.
    pub(crate) large_file: bool,
    /// True if large directories get an index.
    pub(crate) dir_index: bool,
    /// True if an index may have three levels.
    pub(crate) large_dir: bool,
    /// True if inodes have project ids.
    pub(crate) projects: bool,
    /// True if case-insensitive directories accept UTF-8 names only (strict encoding).
    pub(crate) strict_names: bool,
}

impl Params {
    /// Derives the parameters from a superblock.
    pub(crate) fn of(sb: Superblock) -> Self {
        let features = sb.features;
        Self {
            geometry: Geometry::new(&sb),
            checksums: features.metadata_csum(),
            filetype: features.incompat(Incompat::FILETYPE),
            extents: features.incompat(Incompat::EXTENTS),
            huge_file: features.ro_compat(RoCompat::HUGE_FILE),
            large_file: features.ro_compat(RoCompat::LARGE_FILE),
            dir_index: features.compat(Compat::DIR_INDEX),
            large_dir: features.incompat(Incompat::LARGEDIR),
            projects: features.ro_compat(RoCompat::PROJECT),
            strict_names: features.incompat(Incompat::CASEFOLD)
                && sb.raw.encoding_flags.get() & ENCODING_STRICT != 0,
            sb,
        }
    }

    /// Returns the block size in bytes.
    pub(crate) fn block_size(&self) -> usize {
        self.geometry.block_size() as usize
    }

    /// Returns the size of the checksum record at the end of directory blocks, in bytes.
    pub(crate) fn dir_tail_size(&self) -> usize {
        if self.checksums { crate::format::dirent::TAIL_SIZE } else { 0 }
    }

    /// Returns the hash version of new directories.
    pub(crate) fn default_hash_version(&self) -> u8 {
        let version = self.sb.raw.def_hash_version;
        if HashVersion::from_raw(version).is_some() { version } else { HALF_MD4 }
    }

    /// Returns the hasher for an index with the given hash version. Returns `None` for an unknown version.
    pub(crate) fn hasher(&self, version: u8) -> Option<NameHasher> {
        self.hash_parameters().hasher(version)
    }

    /// Returns the parameters of all indexes.
    pub(crate) fn hash_parameters(&self) -> HashParameters {
        let bytes = &self.sb.raw.hash_seed;
        let seed = std::array::from_fn(|i| {
            u32::from_le_bytes([bytes[i * 4], bytes[i * 4 + 1], bytes[i * 4 + 2], bytes[i * 4 + 3]])
        });
        HashParameters { unsigned: !self.sb.signed_hash(), seed }
    }

    /// Returns whether a directory may have more than 65,000 links.
    pub(crate) fn dir_nlink(&self) -> bool {
        self.sb.features.ro_compat(RoCompat::DIR_NLINK)
    }

    /// Returns whether checksums depend on the uuid.
    pub(crate) fn uuid_is_seed(&self) -> bool {
        let features = &self.sb.features;
        features.group_csum() && !features.incompat(Incompat::CSUM_SEED)
    }

    /// Returns the block that contains the primary superblock, and its byte range in that block.
    pub(crate) fn superblock_place(&self) -> (Block, std::ops::Range<usize>) {
        let offset = SUPERBLOCK_OFFSET as usize % self.block_size();
        let block = Block(SUPERBLOCK_OFFSET >> self.geometry.block_size_log);
        (block, offset..offset + SUPERBLOCK_SIZE)
    }

    /// Sets the free counts in a superblock.
    pub(crate) fn set_counts(&self, raw: &mut RawSuperblock, clusters: u64, inodes: u64) {
        raw.set_free_blocks(clusters << self.sb.cluster_blocks_log);
        raw.free_inodes_count = (inodes as u32).into();
    }
}

/// Reads and checks the superblock.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> vfs::Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if device.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(Corruption::new("superblock", "the image is too short for one").into());
    }
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(vfs::Error::Device)?;
    Superblock::parse(&bytes, device.len())
}
