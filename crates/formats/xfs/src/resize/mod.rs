//! Growing a file system in place: extends the last group, and adds new groups.
//!
//! Invariants:
//! - New groups are complete and durable before a superblock includes them. Blocks after the end of the file system
//!   have no meaning until then.
//! - The superblock, as many of its copies as the log has room for, and the last group change in one transaction of the
//!   log: a crash leaves the old size or the new one.
//! - Recovery of that transaction needs a device that is long enough: the caller extends it first.
//!
//! The log of version 4 cannot be written here. Such file systems grow only by new groups, and the superblock, which is
//! one sector, is written in place.

mod commit;
mod groups;
mod growth;
mod old;
pub(crate) mod realtime;

use std::sync::Arc;

use disk::BlockDevice;
use vfs::{Error, Result};

use self::groups::{layout, write_groups};
pub use self::growth::Growth;
pub use self::realtime::{RealtimeGrowth, grow_realtime, plan_realtime};
use crate::Xfs;
use crate::format::superblock::Superblock;
use crate::fs::OpenOptions;
use crate::open::superblock_copy;
use crate::volume::read_superblock;

/// Returns the size of a file system in bytes.
///
/// # Errors
/// `Corrupt` for an invalid superblock, and errors of the device.
pub fn size_bytes(device: &dyn BlockDevice) -> Result<u64> {
    let sb = superblock_of(device)?;
    Ok(sb.raw.dblocks.get() << sb.raw.blocklog)
}

/// Returns the result of growing a file system to `size_bytes`. Nothing is written, and the device may still be
/// shorter. A growth that is only in the log of the image is not taken into account.
///
/// # Errors
/// `Unsupported` for a size smaller than the current one, for too many allocation groups, and for an image that cannot
/// be changed; `Corrupt` for an invalid superblock.
pub fn plan(device: &dyn BlockDevice, size_bytes: u64) -> Result<Growth> {
    let sb = superblock_of(device)?;
    let growth = Growth::of(&sb, size_bytes)?;
    if sb.features.crc() {
        match sb.read_only_because() {
            Some(reason) => return Err(Error::unsupported(reason, "it cannot be changed")),
            None => return Ok(growth),
        }
    }
    old::check(device, &sb, &growth)?;
    Ok(growth)
}

/// Grows a file system that is not open elsewhere, in place, to `size_bytes`. The size is rounded down to whole blocks,
/// and to a last group of at least the minimum size of mkfs.xfs. Replays the log first. Returns the result; if the size
/// does not differ, nothing changes.
///
/// The device must be at least [`Growth::bytes_after`] long.
///
/// # Errors
/// As [`plan`]; `Invalid` if the device is shorter; `Corrupt` if structures to be changed are damaged; if the device
/// fails. After an error the file system has its old size, or the new one if the device failed at the end. Blocks
/// written after its old end have no meaning.
pub fn grow(device: Arc<dyn BlockDevice>, size_bytes: u64) -> Result<Growth> {
    let planned = plan(&*device, size_bytes)?;
    if planned.bytes_after() > device.len() {
        let what = "the device is smaller than the new size; extend it first";
        return Err(Error::Invalid(what));
    }
    if !planned.is_change() {
        return Ok(planned);
    }
    let found = superblock_of(&*device)?;
    if !found.features.crc() {
        return old::grow(&*device, &found, planned);
    }
    // Before any change of an image, the work that a crash left is completed, and the log is emptied.
    Xfs::open_writable(device.clone(), &OpenOptions::default())?.close()?;
    let before = superblock_of(&*device)?;
    let growth = Growth::of(&before, size_bytes)?;
    if growth.is_change() {
        let layout = layout(&before, &growth);
        write_groups(&*device, &layout, &growth)?;
        commit::commit(&device, &before, &layout.as_superblock())?;
    }
    Ok(growth)
}

fn superblock_of(device: &dyn BlockDevice) -> Result<Superblock> {
    read_superblock(device).map_err(|error| superblock_copy::advise(device, error))
}
