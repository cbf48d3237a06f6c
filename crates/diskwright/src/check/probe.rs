//! The format of an image whose first superblock has lost even its magic number.

use blockdev::BlockDevice;
use partition::Signature;
use xfs::format::ag::{AGF_MAGIC, AGI_MAGIC};

use super::Format;

/// Sectors that XFS may have, in bytes: the headers of a group lie in one each, after its superblock.
const XFS_SECTOR_BYTES: [u64; 7] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];

/// Looks at what is left: headers beside the superblock, and copies of it elsewhere. What lies at the start counts
/// first, because copies may be those of a file system that was there before.
pub(super) fn format_without_superblock(device: &dyn BlockDevice) -> Option<Format> {
    if XFS_SECTOR_BYTES.into_iter().any(|sector_bytes| has_xfs_headers(device, sector_bytes)) {
        return Some(Format::Xfs);
    }
    if ext4::has_superblock_copy(device) {
        return Some(Format::Ext4);
    }
    xfs::has_superblock_copy(device).then_some(Format::Xfs)
}

/// Searches the whole device for copies of a superblock. Known formats and disks with partitions are not searched.
pub(super) fn format_by_search(device: &dyn BlockDevice) -> Option<Format> {
    let is_unknown = matches!(Signature::of(device), Ok(Signature::Zeros | Signature::Unknown));
    let is_disk = || partition::read(device).is_ok_and(|partitions| partitions.is_some());
    (is_unknown && !is_disk() && xfs::has_superblock_copy_anywhere(device)).then_some(Format::Xfs)
}

/// Whether the first group has its headers of free space and of inodes.
fn has_xfs_headers(device: &dyn BlockDevice, sector_bytes: u64) -> bool {
    let has_magic = |sector: u64, magic: u32| {
        let mut bytes = [0; 4];
        let offset = sector * sector_bytes;
        offset + 4 <= device.len()
            && device.read_at(offset, &mut bytes).is_ok()
            && u32::from_be_bytes(bytes) == magic
    };
    // One of them may be damaged, too, but four bytes alone would be found in other data.
    has_magic(1, AGF_MAGIC) && has_magic(2, AGI_MAGIC)
}
