//! Sealed superblock sectors.

use zerocopy::IntoBytes;

use crate::check::superblock::in_use;
use crate::format::checksum;
use crate::format::features::Incompat;
use crate::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE};

/// Maximum size of a sector in bytes.
pub(super) const SECTOR_SIZE_MAX: u64 = 32 << 10;

/// Returns the sealed sector of a superblock, with zeros after it. `None` if the sector size is invalid or `found`, the
/// old sector, is too short.
pub(super) fn sealed(raw: &RawSuperblock, found: &[u8]) -> Option<Vec<u8>> {
    let size = usize::from(raw.sectsize.get());
    if !(SUPERBLOCK_SIZE..=SECTOR_SIZE_MAX as usize).contains(&size) || size > found.len().max(size)
    {
        return None;
    }
    let mut raw = raw.clone();
    let mut sector = vec![0; size];
    if raw.features().crc() {
        if !raw.features().incompat(Incompat::METADIR) {
            raw.metadirino = 0.into();
            (raw.rgcount, raw.rgextents, raw.rgblklog) = (0.into(), 0.into(), 0);
        }
        raw.pad.fill(0);
        if !raw.features().incompat(Incompat::ZONED) {
            (raw.rtstart, raw.rtreserved) = (0.into(), 0.into());
        }
        if !raw.features().incompat(Incompat::META_UUID) {
            raw.meta_uuid.fill(0);
        }
        sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
        checksum::seal(&mut sector, CRC_OFFSET);
    } else {
        let end = in_use(&raw.features());
        sector[..end].copy_from_slice(&raw.as_bytes()[..end]);
    }
    Some(sector)
}
