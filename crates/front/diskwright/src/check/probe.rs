//! Format detection for images whose first superblock has lost its magic number.

use disk::BlockDevice;
use disk::partition::Signature;
use xfs::format::ag::{AGF_MAGIC, AGI_MAGIC};

use super::Format;

/// Possible XFS sector sizes in bytes. The headers of a group are in the sectors after its superblock.
const XFS_SECTOR_BYTES: [u64; 7] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];

/// Searches for headers next to the superblock and for its copies. Structures at the start take precedence, because
/// copies may belong to an earlier file system.
pub(super) fn format_without_superblock(device: &dyn BlockDevice) -> Option<Format> {
    if XFS_SECTOR_BYTES.into_iter().any(|sector_bytes| has_xfs_headers(device, sector_bytes)) {
        return Some(Format::Xfs);
    }
    if ext4::has_superblock_copy(device) {
        return Some(Format::Ext4);
    }
    xfs::has_superblock_copy(device).then_some(Format::Xfs)
}

/// Searches the whole device for superblock copies. Known formats and partitioned disks are not searched.
pub(super) fn format_by_search(device: &dyn BlockDevice) -> Option<Format> {
    let is_unknown = matches!(Signature::of(device), Ok(Signature::Zeros | Signature::Unknown));
    let is_disk = || disk::partition::read(device).is_ok_and(|partitions| partitions.is_some());
    (is_unknown && !is_disk() && xfs::has_superblock_copy_anywhere(device)).then_some(Format::Xfs)
}

/// Returns whether the first group has its headers of free space and of inodes.
fn has_xfs_headers(device: &dyn BlockDevice, sector_bytes: u64) -> bool {
    let has_magic = |sector: u64, magic: u32| {
        let mut bytes = [0; 4];
        let offset = sector * sector_bytes;
        offset + 4 <= device.len()
            && device.read_at(offset, &mut bytes).is_ok()
            && u32::from_be_bytes(bytes) == magic
    };
    // Both are required, because four matching bytes also occur in other data.
    has_magic(1, AGF_MAGIC) && has_magic(2, AGI_MAGIC)
}
