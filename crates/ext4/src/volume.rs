//! What every part of an open file system knows: its superblock, geometry and groups.

use std::sync::OnceLock;

use blockdev::BlockDevice;
use transaction::{Corruption, Format, Tag, Txn};
use zerocopy::IntoBytes;

use crate::alloc::groups::{Groups, Trust};
use crate::alloc::system::SystemZone;
use crate::format::address::Block;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::hash::{HashVersion, NameHasher};
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use crate::kind::{self, Kind};
use crate::quota::Quota;

/// The hash version that mke2fs chooses.
const HALF_MD4: u8 = 1;

/// An open file system's fixed facts and its groups.
pub(crate) struct Volume {
    pub(crate) sb: Superblock,
    pub(crate) geometry: Geometry,
    /// Whether metadata has checksums (`metadata_csum`).
    pub(crate) checksums: bool,
    /// Whether entries of directories say the type.
    pub(crate) filetype: bool,
    /// Whether new files get extent trees.
    pub(crate) extents: bool,
    /// Whether files may take more than 2^32 - 1 units of 512 bytes.
    pub(crate) huge_file: bool,
    /// Whether files may have 2 GiB and more.
    pub(crate) large_file: bool,
    /// Whether directories grow an index.
    pub(crate) dir_index: bool,
    /// Whether an index may have three levels.
    pub(crate) large_dir: bool,
    /// Whether inodes belong to projects.
    pub(crate) projects: bool,
    /// Whether the free counts in the superblock are right at each checkpoint. Otherwise they are
    /// written at the end.
    pub(crate) keeps_counts: bool,
    pub(crate) groups: Groups,
    pub(crate) system_zone: SystemZone,
    /// What owners use, once that is to be counted.
    pub(crate) quota: OnceLock<Quota>,
}

impl Volume {
    /// Reads and checks superblock and group descriptors.
    pub(crate) fn read(device: &dyn BlockDevice, trust: Trust) -> vfs::Result<Self> {
        let sb = read_superblock(device)?;
        let geometry = Geometry::new(&sb);
        let groups = Groups::read(device, &sb, &geometry, trust)?;
        let system_zone = SystemZone::new(&geometry, &groups);
        let features = sb.features;
        Ok(Self {
            geometry,
            checksums: features.metadata_csum(),
            filetype: features.incompat(Incompat::FILETYPE),
            extents: features.incompat(Incompat::EXTENTS),
            huge_file: features.ro_compat(RoCompat::HUGE_FILE),
            large_file: features.ro_compat(RoCompat::LARGE_FILE),
            dir_index: features.compat(Compat::DIR_INDEX),
            large_dir: features.incompat(Incompat::LARGEDIR),
            projects: features.ro_compat(RoCompat::PROJECT),
            keeps_counts: false,
            groups,
            system_zone,
            quota: OnceLock::new(),
            sb,
        })
    }

    /// Block size in bytes.
    pub(crate) fn block_size(&self) -> usize {
        self.geometry.block_size() as usize
    }

    /// Bytes at the end of directory blocks that hold their checksum.
    pub(crate) fn dir_tail_size(&self) -> usize {
        if self.checksums { crate::format::dirent::TAIL_SIZE } else { 0 }
    }

    /// The hash version that new directories get.
    pub(crate) fn default_hash_version(&self) -> u8 {
        let version = self.sb.raw.def_hash_version;
        if HashVersion::from_raw(version).is_some() { version } else { HALF_MD4 }
    }

    /// How a directory whose index says `version` hashes names. `None` if that is unknown.
    pub(crate) fn hasher(&self, version: u8) -> Option<NameHasher> {
        let (version, unsigned) = HashVersion::from_raw(version)?;
        let unsigned = unsigned || !self.sb.signed_hash();
        let bytes = &self.sb.raw.hash_seed;
        let seed = std::array::from_fn(|i| {
            u32::from_le_bytes([bytes[i * 4], bytes[i * 4 + 1], bytes[i * 4 + 2], bytes[i * 4 + 3]])
        });
        Some(NameHasher { version, unsigned, seed })
    }

    /// Whether a directory may have more than 65,000 links.
    pub(crate) fn dir_nlink(&self) -> bool {
        self.sb.features.ro_compat(RoCompat::DIR_NLINK)
    }

    /// Whether checksums depend on the uuid.
    pub(crate) fn uuid_is_seed(&self) -> bool {
        let features = &self.sb.features;
        features.group_csum() && !features.incompat(Incompat::CSUM_SEED)
    }

    /// Gives the file system another uuid: in `raw` and in the backups of the superblock. (The
    /// journal has a uuid of its own.)
    pub(crate) fn write_uuid(
        &self,
        uuid: [u8; 16],
        raw: &mut RawSuperblock,
        device: &dyn BlockDevice,
    ) -> vfs::Result<()> {
        raw.uuid = uuid;
        for group in self.geometry.groups().skip(1) {
            let Some(block) = self.geometry.superblock_of(group) else { continue };
            let mut backup = RawSuperblock::zeroed();
            let offset = self.geometry.byte_of(block);
            device.read_at(offset, backup.as_mut_bytes()).map_err(vfs::Error::Device)?;
            backup.uuid = uuid;
            backup.seal();
            device.write_at(offset, backup.as_bytes()).map_err(vfs::Error::Device)?;
        }
        Ok(())
    }

    /// Writes the primary superblock.
    pub(crate) fn write_superblock(
        &self,
        raw: &RawSuperblock,
        device: &dyn BlockDevice,
    ) -> vfs::Result<()> {
        let mut raw = raw.clone();
        raw.seal();
        device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(vfs::Error::Device)
    }

    /// Writes the free counts into a superblock.
    pub(crate) fn set_counts(&self, raw: &mut RawSuperblock, clusters: u64, inodes: u64) {
        raw.set_free_blocks(clusters << self.sb.cluster_blocks_log);
        raw.free_inodes_count = (inodes as u32).into();
    }

    /// The block that the primary superblock lies in, and its bytes there.
    pub(crate) fn superblock_place(&self) -> (Block, std::ops::Range<usize>) {
        let offset = SUPERBLOCK_OFFSET as usize % self.block_size();
        let block = Block(SUPERBLOCK_OFFSET >> self.geometry.block_size_log);
        (block, offset..offset + SUPERBLOCK_SIZE)
    }

    /// Changes fields of the primary superblock within a transaction; its checksum follows when it
    /// is written.
    pub(crate) fn edit_superblock(
        &self,
        txn: &mut Txn<'_>,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> transaction::Result<()> {
        let (block, range) = self.superblock_place();
        let id = txn.buffer(block.0, Kind::Superblock.plain())?;
        let mut raw = RawSuperblock::zeroed();
        let old = &txn.data(id)[range.clone()];
        raw.as_mut_bytes().copy_from_slice(old);
        change(&mut raw);
        // Only what changed is edited: the transaction keeps that many old bytes.
        let differs = |at: &usize| old[*at] != raw.as_bytes()[*at];
        let Some(first) = (0..SUPERBLOCK_SIZE).find(differs) else { return Ok(()) };
        let end = (first..SUPERBLOCK_SIZE).rfind(differs).unwrap_or(first) + 1;
        txn.edit(id, range.start + first..range.start + end)
            .copy_from_slice(&raw.as_bytes()[first..end]);
        Ok(())
    }

    /// Checks that `len` blocks from `start` on can belong to a file.
    pub(crate) fn check_blocks(&self, start: Block, len: u64) -> Result<(), Corruption> {
        if !self.geometry.contains(start, len) {
            let damage = Corruption::new("block map", "blocks outside the file system");
            return Err(
                damage.mismatch(format_args!("below {}", self.geometry.blocks_count), start)
            );
        }
        if self.system_zone.overlaps(start, len) {
            return Err(Corruption::new("block map", "blocks of the file system itself")
                .mismatch("a file's blocks", format_args!("{len} from {start} on")));
        }
        Ok(())
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

impl Format for Volume {
    fn verify(&self, tag: Tag, block: u64, data: &[u8]) -> Result<(), Corruption> {
        kind::verify(self, tag, Block(block), data).map_err(|c| c.at_block(block))
    }

    fn seal(&self, tag: Tag, block: u64, data: &mut [u8]) -> Result<(), Corruption> {
        kind::seal(self, tag, Block(block), data);
        Ok(())
    }

    fn settle(&self, txn: &mut Txn<'_>) -> transaction::Result<()> {
        if self.groups.settle(self, txn)? && self.keeps_counts {
            let (clusters, inodes) = self.groups.totals();
            self.edit_superblock(txn, |raw| self.set_counts(raw, clusters, inodes))?;
        }
        self.quota.get().map_or(Ok(()), |quota| quota.settle(txn))
    }

    fn durable(&self) {
        self.groups.release_busy();
    }
}
