//! Changes fields of the superblock of a closed file system (names, times, limits and hints), and its features with
//! everything that depends on them.

mod request;
mod structure;

use std::sync::Arc;

use disk::{BlockDevice, DeviceRole};
use vfs::{Corruption, Error, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::format::address::{Block, Group};
use crate::format::features::{Features, Incompat, RoCompat};
use crate::format::group::GroupDescriptor;
use crate::format::superblock::{
    self, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock,
};
use crate::params::{Params, read_superblock};
use crate::repair::changes::Changes;

pub use crate::mkfs::journal::NewJournal;
use request::FeatureChange;
pub use request::{Request, can_change};

/// Changes the superblock of a clean file system and its valid copies. `change` may set all fields that do not define
/// the layout; this is checked before anything is written.
///
/// The superblock is written durably before its copies. After a crash it is either the old or the new one, and copies
/// matter only if the superblock is lost.
///
/// # Errors
/// If the file system needs recovery or has features that this build does not write; `Corrupt` for a damaged
/// superblock; errors of `change`; `Invalid` if it changed the layout. Nothing was written in these cases. `Device` if
/// writing failed.
pub fn change_superblock(
    device: &dyn BlockDevice,
    change: &mut dyn FnMut(&mut RawSuperblock) -> Result<()>,
) -> Result<()> {
    let params = Params::of(read_superblock(device)?);
    let old = &params.sb;
    let mut new = old.raw.clone();
    change(&mut new)?;
    check_writable(old, new.features())?;
    if old.features.incompat(Incompat::RECOVER) {
        return Err(Error::Invalid("its journal must be replayed; run diskwright recover first"));
    }
    new.seal();
    let parsed = check(old, &new, device.len())?;
    let tables = resealed_tables(device, &params, &parsed)?;
    device.write_at(SUPERBLOCK_OFFSET, new.as_bytes()).map_err(Error::Device)?;
    for (offset, table) in &tables {
        device.write_at(*offset, table).map_err(Error::Device)?;
    }
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

/// Changes features of a clean file system with everything that depends on them, and fields of its superblock and of
/// the copies.
///
/// Changes that need more than the superblock are tried in memory and checked before anything is written.
///
/// # Errors
/// `Unsupported` for a feature that cannot change, or for damage that the check finds before or after the change.
/// `Invalid`, `NoSpace` and `NoInodes` if the file system has no room for the request. Errors of `fields`. Nothing was
/// written in these cases. `Device` if writing failed; the superblock is then marked as not clean.
pub fn tune(
    device: &Arc<dyn BlockDevice>,
    request: &Request,
    fields: &mut dyn FnMut(&mut RawSuperblock) -> Result<()>,
) -> Result<()> {
    let sb = read_superblock(&**device)?;
    let target = FeatureChange::of(&sb, request)?;
    check_writable(&sb, target.new)?;
    if sb.features.incompat(Incompat::RECOVER) {
        return Err(Error::Invalid("its journal must be replayed; run diskwright recover first"));
    }
    check_forgotten(&**device, &sb, request)?;
    check_not_in_use(device, &sb, request)?;
    structure::check_seed(&sb, request, &target)?;
    if structure::is_needed(&sb, request, &target) {
        return structure::change(device, &sb, request, &target, fields);
    }
    change_superblock(&**device, &mut |raw| {
        target.apply(request, raw);
        fields(raw)
    })
}

/// Rejects a file system with features that this build does not write. The read-only flag may be removed.
fn check_writable(old: &Superblock, new: Features) -> Result<()> {
    let mut kept = old.clone();
    if !new.ro_compat(RoCompat::READONLY) {
        kept.features.ro_compat.remove(RoCompat::READONLY);
    }
    match kept.read_only_because() {
        Some(why) => Err(Error::unsupported(why, "mount it with a kernel that supports it")),
        None => Ok(()),
    }
}

/// Rejects a request to forget a journal that is not on a missing device.
fn check_forgotten(device: &dyn BlockDevice, sb: &Superblock, request: &Request) -> Result<()> {
    let is_missing = sb.has_external_journal() && device.part_len(DeviceRole::Log).is_none();
    if !request.forgets_journal || is_missing {
        return Ok(());
    }
    Err(Error::Invalid("the journal is not on a missing device"))
}

/// Rejects a file system that another host may be using.
fn check_not_in_use(
    device: &Arc<dyn BlockDevice>,
    sb: &Superblock,
    request: &Request,
) -> Result<()> {
    if !sb.features.incompat(Incompat::MMP) || request.clears_mmp {
        return Ok(());
    }
    let staging = Arc::new(operations::repair::Staging::new(Arc::clone(device)));
    if Changes::new(staging).is_mmp_clean()? {
        return Ok(());
    }
    Err(Error::Invalid(
        "the MMP block says that another host uses it; if none does, run tune2fs -f -E clear_mmp",
    ))
}

/// Returns whether the journal contains changes, so that only a replay may change the image.
///
/// # Errors
/// `Corrupt` for a damaged superblock; `Device` if it cannot be read.
pub fn needs_recovery(device: &dyn BlockDevice) -> Result<bool> {
    Ok(read_superblock(device)?.features.incompat(Incompat::RECOVER))
}

/// Returns the blocks of group descriptors whose checksums cover the UUID (`uninit_bg`), with checksums for the new
/// one, each with its byte offset on the device. Empty if the UUID stays, or if descriptors have no such checksum.
/// Includes valid copies.
///
/// # Errors
/// `Corrupt` for a damaged primary descriptor.
fn resealed_tables(
    device: &dyn BlockDevice,
    params: &Params,
    new: &Superblock,
) -> Result<Vec<(u64, Vec<u8>)>> {
    let (old, geometry) = (&params.sb, &params.geometry);
    let covers_uuid = old.features.group_csum() && !old.features.metadata_csum();
    if !covers_uuid || old.raw.uuid == new.raw.uuid {
        return Ok(Vec::new());
    }
    let mut tables = Vec::new();
    for holder in geometry.groups() {
        let (indexes, start) = geometry.gdt_copy_in(holder);
        for (index, block) in indexes.zip(start.0..) {
            let is_primary = geometry.gdt_block(index).0 == block;
            let offset = geometry.byte_of(Block(block));
            let mut table = vec![0; geometry.block_size() as usize];
            device.read_at(offset, &mut table).map_err(Error::Device)?;
            match reseal(&mut table, index, params, new) {
                Ok(()) => tables.push((offset, table)),
                Err(damage) if is_primary => return Err(damage.into()),
                Err(_) => {}
            }
        }
    }
    Ok(tables)
}

/// Updates the checksums of one block of the descriptor table for a new superblock.
fn reseal(
    table: &mut [u8],
    index: u32,
    params: &Params,
    new: &Superblock,
) -> std::result::Result<(), Corruption> {
    let per_block = params.geometry.desc_per_block();
    let size = usize::from(params.sb.desc_size);
    let last = params.sb.groups_count.min((index + 1) * per_block);
    for (slot, group) in (index * per_block..last).enumerate() {
        let bytes = &mut table[slot * size..(slot + 1) * size];
        let descriptor = GroupDescriptor::parse(bytes, &params.sb, Group(group))?;
        descriptor.write(bytes, new, Group(group));
    }
    Ok(())
}

/// Rejects a superblock with another layout.
fn check(old: &Superblock, new: &RawSuperblock, device_len: u64) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    bytes.copy_from_slice(new.as_bytes());
    let new = Superblock::parse(&bytes, device_len)?;
    let layout = |sb: &Superblock| {
        let sizes = (sb.block_size_log, sb.cluster_blocks_log, sb.inode_size, sb.desc_size);
        let counts = (sb.blocks_count, sb.inodes_count, sb.blocks_per_group, sb.inodes_per_group);
        (sizes, counts, sb.first_data_block)
    };
    // Values in separate inodes have a hash with the seed, with and without metadata checksums.
    let uses_seed =
        |sb: &Superblock| sb.features.metadata_csum() || sb.features.incompat(Incompat::EA_INODE);
    let same_seed = !uses_seed(old) || old.checksum_seed == new.checksum_seed;
    if layout(old) == layout(&new) && same_seed {
        return Ok(new);
    }
    Err(Error::Invalid("sizes, counts and the checksum seed of a file system cannot be changed"))
}

#[cfg(test)]
mod tests {
    use disk::MemoryDevice;

    use super::*;
    use crate::format::features::Feature;
    use crate::mkfs::{self, Options, PreviousContents};

    fn image() -> MemoryDevice {
        let device = MemoryDevice::new(64 << 20);
        let options = Options { block_size: Some(1024), ..Options::new(64 << 20) };
        let layout = mkfs::plan(&options).unwrap();
        mkfs::format(&device, &layout, PreviousContents::Zeros).unwrap();
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
    fn a_new_uuid_reseals_descriptors_whose_checksums_cover_it() {
        let device = MemoryDevice::new(300 << 20);
        let mut options = Options { block_size: Some(1024), ..Options::new(300 << 20) };
        let changes =
            [("metadata_csum", false), ("metadata_csum_seed", false), ("uninit_bg", true)];
        for (name, on) in changes {
            let feature = Feature::from_name(name).unwrap();
            options.features.push(mkfs::FeatureChange { feature, on });
        }
        let layout = mkfs::plan(&options).unwrap();
        mkfs::format(&device, &layout, PreviousContents::Zeros).unwrap();
        change_superblock(&device, &mut |raw| {
            raw.uuid = [7; 16];
            Ok(())
        })
        .unwrap();
        let params = Params::of(read_superblock(&device).unwrap());
        assert_eq!(params.sb.raw.uuid, [7; 16]);
        for group in params.geometry.groups() {
            let (block, offset) = params.geometry.descriptor_position(group);
            let mut bytes = vec![0; usize::from(params.sb.desc_size)];
            device.read_at(params.geometry.byte_of(block) + offset as u64, &mut bytes).unwrap();
            GroupDescriptor::parse(&bytes, &params.sb, group).unwrap();
        }
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
