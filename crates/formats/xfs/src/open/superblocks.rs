//! Changing the superblock and its copies in the other groups.

use engine::Txn;
use vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::XfsCore;
use crate::format::address::{AgBlock, AgNumber, FsBlock};
use crate::format::features::Incompat;
use crate::format::superblock::{self, RawSuperblock, SUPERBLOCK_SIZE};
use crate::format::{checksum, log};
use crate::kind::Kind;

impl XfsCore {
    /// Changes the superblock of a group. It is written at the next checkpoint.
    pub(crate) fn edit_superblock(
        &self,
        ag: AgNumber,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> Result<()> {
        let mut txn = self.engine.begin()?;
        self.edit_superblock_in(&mut txn, ag, change)?;
        txn.commit();
        Ok(())
    }

    /// Changes the superblock of a group in a transaction.
    pub(crate) fn edit_superblock_in(
        &self,
        txn: &mut Txn<'_>,
        ag: AgNumber,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> Result<()> {
        let geometry = &self.volume.geometry;
        let block = geometry.block_of(ag, AgBlock(0));
        let id = txn.buffer(block.0, Kind::AgHeader.of_group(ag))?;
        let mut sector = txn.data(id)[..geometry.sector_size()].to_vec();
        let damage = |_| vfs::Corruption::new("superblock", "truncated").at_block(block.0);
        let start = &mut sector[..SUPERBLOCK_SIZE];
        let mut raw = RawSuperblock::read_from_bytes(start).map_err(damage)?;
        change(&mut raw);
        start.copy_from_slice(raw.as_bytes());
        // The engine does not seal copies when it writes them.
        checksum::seal(&mut sector, superblock::CRC_OFFSET);
        txn.edit(id, 0..sector.len()).copy_from_slice(&sector);
        Ok(())
    }

    /// Changes the UUID of the superblock copies and of the log. Metadata keeps its UUID.
    pub(crate) fn change_uuid_of_copies(&self, uuid: [u8; 16]) -> Result<()> {
        for ag in self.volume.geometry.ags().skip(1) {
            self.edit_superblock(ag, |raw| set_uuid(raw, uuid))?;
        }
        self.start_log(uuid)
    }

    /// Writes the unmount record of an empty log, at the location used by mkfs. The kernel requires the UUID of the
    /// superblock in it, not that of the metadata.
    fn start_log(&self, uuid: [u8; 16]) -> Result<()> {
        let raw = &self.volume.sb.raw;
        let record = log::unmount_record(&log::Unmount {
            lsn: log::Lsn { cycle: 1, block: 0 },
            previous: None,
            uuid,
            unit: raw.logsunit.get(),
        });
        let geometry = &self.volume.geometry;
        let start = FsBlock(raw.logstart.get());
        if !geometry.contains(start, raw.logblocks.get().into()) {
            return Err(vfs::Corruption::new(
                "superblock",
                "the log is not inside an allocation group",
            )
            .into());
        }
        let offset = geometry.byte_of(geometry.device_block(start));
        self.engine.device().write_at(offset, &record).map_err(Error::Device)
    }
}

/// Changes the UUID of a superblock. Metadata keeps the original UUID, which becomes `meta_uuid`.
pub(crate) fn set_uuid(raw: &mut RawSuperblock, uuid: [u8; 16]) {
    let features = Incompat::from_bits_retain(raw.features_incompat.get());
    let first = if features.contains(Incompat::META_UUID) { raw.meta_uuid } else { raw.uuid };
    let differs = first != uuid;
    raw.uuid = uuid;
    raw.meta_uuid = if differs { first } else { [0; 16] };
    let mut features = features;
    features.set(Incompat::META_UUID, differs);
    raw.features_incompat = features.bits().into();
}
