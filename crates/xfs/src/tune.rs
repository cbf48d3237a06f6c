//! Changing what identifies a file system that nobody has open.

use blockdev::BlockDevice;
use vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::checksum;
use crate::format::features::Incompat;
use crate::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use crate::log::{log_end, log_is_clean, write_clean};
use crate::open::superblocks::set_uuid;
use crate::volume::read_superblock;

/// The uuid that a file system is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewUuid {
    /// This one. All zeros is none: kernels do not mount that without `nouuid`.
    Given([u8; 16]),
    /// The one that it was made with.
    First,
}

/// Gives a clean file system another uuid: in the superblock, its copies, and the log, whose records bear it.
///
/// All other metadata goes on to bear the uuid that the file system was made with, which the superblock keeps (feature
/// `meta_uuid`, which kernels have known since 4.3); with that one back, the feature is gone.
///
/// A crash in between may leave a log of another uuid than the superblock's, or one that is neither the old nor the new
/// one. It held nothing before, so that a repair, which starts the log anew, loses nothing.
///
/// # Errors
/// If the log holds changes, or the file system has what this build does not write: `Unsupported` or `Invalid`, and
/// nothing was written; `Corrupt` for a damaged superblock or copy of it, or a log without an end; `Device` if the
/// device fails.
pub fn change_uuid(device: &dyn BlockDevice, new: NewUuid) -> Result<()> {
    let sb = read_superblock(device)?;
    if let Some(reason) = sb.read_only_because() {
        return Err(Error::unsupported(reason, "mount it with a kernel that has it"));
    }
    let Some(end) = log_end(device, &sb)? else {
        return Err(vfs::Corruption::new("log", "it has no end").into());
    };
    if !end.is_clean {
        return Err(Error::Invalid("its log holds changes: recover it first"));
    }
    let raw = &sb.raw;
    let has_first = sb.features.incompat(Incompat::META_UUID);
    let first = if has_first { raw.meta_uuid } else { raw.uuid };
    let uuid = match new {
        NewUuid::Given(uuid) => uuid,
        NewUuid::First => first,
    };
    if uuid == raw.uuid {
        return Ok(());
    }
    // All are read before one is written.
    let mut sectors =
        (0..raw.agcount.get()).map(|ag| sector(device, &sb, ag)).collect::<Result<Vec<_>>>()?;
    for (_, bytes) in &mut sectors {
        let start = &mut bytes[..SUPERBLOCK_SIZE];
        let mut copy = parse(start)?;
        // Copies may be older than a uuid that was given before.
        copy.uuid = raw.uuid;
        copy.meta_uuid = raw.meta_uuid;
        copy.features_incompat = raw.features_incompat;
        set_uuid(&mut copy, uuid);
        start.copy_from_slice(copy.as_bytes());
        checksum::seal(bytes, CRC_OFFSET);
    }
    let changed = Superblock::parse(&sectors[0].1, device.len())?;
    // Cycles go on, for no block may have been written later than the log's end.
    let cycle = end.last.map_or(1, |record| record.lsn.cycle.saturating_add(1));
    write_clean(device, &changed, cycle)?;
    for (offset, bytes) in &sectors {
        device.write_at(*offset, bytes).map_err(Error::Device)?;
    }
    device.flush().map_err(Error::Device)
}

/// Whether the log holds changes, so that nothing may be changed but by it.
///
/// # Errors
/// `Corrupt` for a superblock that is damaged; `Unsupported` for a log on another device; `Device` if one cannot be
/// read.
pub fn needs_recovery(device: &dyn BlockDevice) -> Result<bool> {
    Ok(!log_is_clean(device, &read_superblock(device)?)?)
}

/// The sector of a group's superblock, and where it lies.
fn sector(device: &dyn BlockDevice, sb: &Superblock, ag: u32) -> Result<(u64, Vec<u8>)> {
    let raw = &sb.raw;
    let offset = (u64::from(ag) * u64::from(raw.agblocks.get())) << raw.blocklog;
    let mut bytes = vec![0; usize::from(raw.sectsize.get())];
    device.read_at(offset, &mut bytes).map_err(Error::Device)?;
    checksum::check("superblock", &bytes, CRC_OFFSET)?;
    Ok((offset, bytes))
}

fn parse(bytes: &[u8]) -> Result<RawSuperblock> {
    let damage = |_| vfs::Corruption::new("superblock", "cut short");
    RawSuperblock::read_from_bytes(bytes).map_err(|e| damage(e).into())
}
