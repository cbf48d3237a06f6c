//! An open file system below its operations: parameters, groups, quota, and the hooks that the engine calls.

use std::ops::Deref;
use std::sync::OnceLock;

use disk::BlockDevice;
use engine::{Corruption, Txn};
use zerocopy::IntoBytes;

use crate::alloc::groups::{Groups, Trust};
use crate::alloc::system::SystemZone;
use crate::blocks::odd::Oddities;
use crate::format::address::Block;
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use crate::kind::BlockKind;
use crate::params::{Params, read_superblock};
use crate::quota::Quota;

/// An open file system: its constant parameters, its groups and the usage of owners.
pub(crate) struct Volume {
    params: Params,
    /// True if the free counts in the superblock are updated at each checkpoint. Otherwise they are written at closing.
    pub(crate) keeps_counts: bool,
    pub(crate) groups: Groups,
    pub(crate) system_zone: SystemZone,
    /// Usage per owner, set once usage is to be counted.
    pub(crate) quota: OnceLock<Quota>,
    /// Blocks with unusual contents, found while reading.
    pub(crate) oddities: Oddities,
}

impl Deref for Volume {
    type Target = Params;

    fn deref(&self) -> &Params {
        &self.params
    }
}

impl Volume {
    /// Reads and checks the superblock and the group descriptors.
    pub(crate) fn read(device: &dyn BlockDevice, trust: Trust) -> vfs::Result<Self> {
        let params = Params::of(read_superblock(device)?);
        let groups = Groups::read(device, &params.sb, &params.geometry, trust)?;
        let system_zone = SystemZone::new(&params.geometry, &groups);
        let quota = OnceLock::new();
        let oddities = Oddities::default();
        Ok(Self { params, keeps_counts: false, groups, system_zone, quota, oddities })
    }

    /// Changes the uuid of the file system in `raw` and in the backup superblocks. They also get the uuid of the journal
    /// on another device from `raw`; that of an internal journal is separate.
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
            backup.journal_uuid = raw.journal_uuid;
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

    /// Changes fields of the primary superblock within a transaction. Its checksum is computed when it is written.
    pub(crate) fn edit_superblock(
        &self,
        txn: &mut Txn<'_>,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> engine::Result<()> {
        let (block, range) = self.superblock_place();
        let id = txn.buffer(block.0, BlockKind::Superblock.plain())?;
        let mut raw = RawSuperblock::zeroed();
        let old = &txn.data(id)[range.clone()];
        raw.as_mut_bytes().copy_from_slice(old);
        change(&mut raw);
        // Edit only the bytes that changed: the transaction keeps a copy of all edited bytes.
        let differs = |at: &usize| old[*at] != raw.as_bytes()[*at];
        let Some(first) = (0..SUPERBLOCK_SIZE).find(differs) else { return Ok(()) };
        let end = (first..SUPERBLOCK_SIZE).rfind(differs).unwrap_or(first) + 1;
        txn.edit(id, range.start + first..range.start + end)
            .copy_from_slice(&raw.as_bytes()[first..end]);
        Ok(())
    }

    /// Checks that `len` blocks from `start` on may belong to a file.
    pub(crate) fn check_blocks(&self, start: Block, len: u64) -> Result<(), Corruption> {
        if !self.geometry.contains(start, len) {
            let damage = Corruption::new("block map", "blocks outside the file system");
            return Err(
                damage.mismatch(format_args!("below {}", self.geometry.blocks_count), start)
            );
        }
        if self.system_zone.overlaps(start, len) {
            return Err(Corruption::new("block map", "blocks of file system metadata")
                .mismatch("a file's blocks", format_args!("{len} from {start}")));
        }
        Ok(())
    }
}
