//! Changing the UUID and the features of a file system that is not open.

mod features;
mod quotas;

use disk::BlockDevice;
use vfs::{Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::checksum;
use crate::format::features::Incompat;
use crate::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE, Superblock};
use crate::log::{log_end, log_is_clean, write_clean};
use crate::open::realtime::{require_device, write_superblock};
use crate::open::superblocks::set_uuid;
use crate::volume::read_superblock;
pub use features::{NewFeature, add_features};
pub use quotas::{QuotaFlags, Quotas, add_quotas, change_quota_flags, make_quotas};

/// The new UUID of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewUuid {
    /// The given one. All zeros means none: kernels mount such a file system only with `nouuid`.
    Given([u8; 16]),
    /// The UUID that the file system was made with.
    First,
}

/// Changes the UUID of a clean file system: in the superblock, its copies, and the log, whose records contain it.
///
/// All other metadata keeps the UUID that the file system was made with. The superblock stores it with the feature
/// `meta_uuid`, supported by kernels since 4.3. Restoring the original UUID removes the feature.
///
/// A crash in between may leave a log whose UUID differs from the superblock's. The log was empty before, so a repair,
/// which resets the log, loses nothing.
///
/// # Errors
/// `Unsupported` or `Invalid` if the log contains changes, or for features that this build does not write: nothing was
/// written then. `Corrupt` for a damaged superblock or copy, or a log without an end; `Device` if the device fails.
pub fn change_uuid(device: &dyn BlockDevice, new: NewUuid) -> Result<()> {
    let sb = read_superblock(device)?;
    if let Some(reason) = sb.read_only_because() {
        return Err(Error::unsupported(reason, "mount it with a kernel that supports it"));
    }
    require_device(device)?;
    let Some(end) = log_end(device, &sb)? else {
        return Err(vfs::Corruption::new("log", "its end cannot be found").into());
    };
    if !end.is_clean {
        return Err(Error::Invalid("its log must be replayed; run diskwright recover first"));
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
        // Copies may be older than the last change of the UUID.
        copy.uuid = raw.uuid;
        copy.meta_uuid = raw.meta_uuid;
        copy.features_incompat = raw.features_incompat;
        set_uuid(&mut copy, uuid);
        start.copy_from_slice(copy.as_bytes());
        checksum::seal(bytes, CRC_OFFSET);
    }
    let changed = Superblock::parse(&sectors[0].1, device.len())?;
    // Cycles continue to increase, because no block may have an LSN after the log's end.
    let cycle = end.last.map_or(1, |record| record.lsn.cycle.saturating_add(1));
    write_clean(device, &changed, cycle)?;
    for (offset, bytes) in &sectors {
        device.write_at(*offset, bytes).map_err(Error::Device)?;
    }
    device.flush().map_err(Error::Device)?;
    write_superblock(device, &changed)
}

/// Returns whether the log contains changes, so that the image must be recovered before it is changed.
///
/// # Errors
/// `Corrupt` for a damaged superblock; `Unsupported` for a log on another device; `Device` if the device cannot be
/// read.
pub fn needs_recovery(device: &dyn BlockDevice) -> Result<bool> {
    Ok(!log_is_clean(device, &read_superblock(device)?)?)
}

/// Byte offset and contents of a sector.
type Sector = (u64, Vec<u8>);

/// Returns the sector of a group's superblock.
fn sector(device: &dyn BlockDevice, sb: &Superblock, ag: u32) -> Result<Sector> {
    let raw = &sb.raw;
    let offset = (u64::from(ag) * u64::from(raw.agblocks.get())) << raw.blocklog;
    let mut bytes = vec![0; usize::from(raw.sectsize.get())];
    device.read_at(offset, &mut bytes).map_err(Error::Device)?;
    checksum::check("superblock", &bytes, CRC_OFFSET)?;
    Ok((offset, bytes))
}

fn parse(bytes: &[u8]) -> Result<RawSuperblock> {
    let damage = |_| vfs::Corruption::new("superblock", "truncated");
    RawSuperblock::read_from_bytes(bytes).map_err(|e| damage(e).into())
}
