//! Changing what a superblock says of a file system that nobody has open: its names, times, limits and hints.

use blockdev::BlockDevice;
use vfs::{Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::format::features::Incompat;
use crate::format::superblock::{
    self, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use crate::params::{Params, read_superblock};

/// Changes the superblock of a clean file system, and its copies that are sound. `change` may set whatever is no
/// part of the layout; the layout is compared before anything is written.
///
/// The superblock is written and made durable before its copies are: what a crash leaves is the old one or the new one,
/// and copies count only where the superblock is lost.
///
/// # Errors
/// If the file system needs recovery, or has what this build does not write; `Corrupt` for a superblock that is
/// damaged; what `change` returns; `Invalid` if it changed the layout. Nothing was written then. `Device` if writing
/// failed.
pub fn change_superblock(
    device: &dyn BlockDevice,
    change: &mut dyn FnMut(&mut RawSuperblock) -> Result<()>,
) -> Result<()> {
    let params = Params::of(read_superblock(device)?);
    let old = &params.sb;
    if let Some(why) = old.read_only_because() {
        return Err(Error::unsupported(why, "mount it with a kernel that has it"));
    }
    if old.features.incompat(Incompat::RECOVER) {
        return Err(Error::Invalid("its journal holds changes: recover it first"));
    }
    let mut new = old.raw.clone();
    change(&mut new)?;
    new.seal();
    check(old, &new, device.len())?;
    device.write_at(SUPERBLOCK_OFFSET, new.as_bytes()).map_err(Error::Device)?;
    device.flush().map_err(Error::Device)?;
    for group in params.geometry.groups().skip(1) {
        let Some(block) = params.geometry.superblock_of(group) else { continue };
        let offset = params.geometry.byte_of(block);
        let mut copy = RawSuperblock::new_zeroed();
        device.read_at(offset, copy.as_mut_bytes()).map_err(Error::Device)?;
        if superblock::verify(copy.as_bytes()).is_err() {
            continue;
        }
        change(&mut copy)?;
        copy.seal();
        device.write_at(offset, copy.as_bytes()).map_err(Error::Device)?;
    }
    device.flush().map_err(Error::Device)
}

/// Whether the journal holds changes, so that nothing may be changed but by it.
///
/// # Errors
/// `Corrupt` for a superblock that is damaged; `Device` if it cannot be read.
pub fn needs_recovery(device: &dyn BlockDevice) -> Result<bool> {
    Ok(read_superblock(device)?.features.incompat(Incompat::RECOVER))
}

/// Refuses what is not the same file system any more.
fn check(old: &Superblock, new: &RawSuperblock, device_len: u64) -> Result<()> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    bytes.copy_from_slice(new.as_bytes());
    let new = Superblock::parse(&bytes, device_len)?;
    let layout = |sb: &Superblock| {
        let sizes = (sb.block_size_log, sb.cluster_blocks_log, sb.inode_size, sb.desc_size);
        let counts = (sb.blocks_count, sb.inodes_count, sb.blocks_per_group, sb.inodes_per_group);
        (sizes, counts, sb.first_data_block, sb.checksum_seed)
    };
    if layout(old) == layout(&new) {
        return Ok(());
    }
    Err(Error::Invalid(
        "sizes and counts of a file system, and the seed of its checksums, stay as they are",
    ))
}

#[cfg(test)]
mod tests {
    use blockdev::MemoryDevice;

    use super::*;
    use crate::mkfs::{self, Contents, Options};

    fn image() -> MemoryDevice {
        let device = MemoryDevice::new(64 << 20);
        let options = Options { block_size: Some(1024), ..Options::new(64 << 20) };
        let layout = mkfs::plan(&options).unwrap();
        mkfs::format(&device, &layout, Contents::Zeros).unwrap();
        device
    }

    #[test]
    fn copies_are_changed_too() {
        let device = image();
        change_superblock(&device, &mut |raw| {
            raw.max_mnt_count = 17.into();
            Ok(())
        })
        .unwrap();
        let params = Params::of(read_superblock(&device).unwrap());
        assert_eq!(params.sb.raw.max_mnt_count, 17);
        let mut copies = 0;
        for group in params.geometry.groups().skip(1) {
            let Some(block) = params.geometry.superblock_of(group) else { continue };
            let mut copy = RawSuperblock::new_zeroed();
            device.read_at(params.geometry.byte_of(block), copy.as_mut_bytes()).unwrap();
            assert_eq!(copy.max_mnt_count, 17);
            superblock::verify(copy.as_bytes()).unwrap();
            copies += 1;
        }
        assert!(copies > 0);
    }

    #[test]
    fn the_layout_stays() {
        let device = image();
        let before = read_superblock(&device).unwrap().raw;
        let result = change_superblock(&device, &mut |raw| {
            raw.inodes_per_group = 8.into();
            Ok(())
        });
        assert!(result.is_err());
        let result = change_superblock(&device, &mut |raw| {
            raw.volume_name = *b"something else..";
            Err(Error::Invalid("no"))
        });
        assert!(result.is_err());
        assert_eq!(read_superblock(&device).unwrap().raw.as_bytes(), before.as_bytes());
    }
}
