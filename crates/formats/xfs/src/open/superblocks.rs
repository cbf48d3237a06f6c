//! Changing the superblock and its copies in the other groups.

use engine::Txn;
use vfs::Result;
use zerocopy::{FromBytes, IntoBytes};

use crate::XfsCore;
use crate::format::address::{AgBlock, AgNumber};
use crate::format::checksum;
use crate::format::features::Incompat;
use crate::format::superblock::{self, RawSuperblock, SUPERBLOCK_SIZE};
use crate::kind::BlockKind;
use crate::log;

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
        let id = txn.buffer(block.0, BlockKind::AgHeader.of_group(ag))?;
        let mut sector = txn.data(id)[..geometry.sector_size()].to_vec();
        let damage = |_| vfs::Corruption::new("superblock", "truncated").at_block(block.0);
        let start = &mut sector[..SUPERBLOCK_SIZE];
        let mut raw = RawSuperblock::read_from_bytes(start).map_err(damage)?;
        change(&mut raw);
        start.copy_from_slice(raw.as_bytes());
        if geometry.features.crc() {
            // The engine does not seal copies when it writes them.
            checksum::seal(&mut sector, superblock::CRC_OFFSET);
        }
        txn.edit(id, 0..sector.len()).copy_from_slice(&sector);
        Ok(())
    }

    /// Changes the UUID of the superblock copies and of the log. Metadata keeps its UUID.
    pub(crate) fn change_uuid_of_copies(&self, uuid: [u8; 16]) -> Result<()> {
        for ag in self.volume.geometry.ags().skip(1) {
            self.edit_superblock(ag, |raw| set_uuid(raw, uuid))?;
        }
        // At the location used by mkfs, and on the log device if there is one.
        log::write_first(&**self.engine.device(), &self.volume.sb, uuid)
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
