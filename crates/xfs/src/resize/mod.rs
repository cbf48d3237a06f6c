//! Growing a file system in place: the last group becomes whole, and new groups follow it.
//!
//! Invariants:
//! - New groups are whole and durable before a superblock says that they exist. What lies behind the file system means
//!   nothing until then.
//! - The superblock, its copies as far as the log has room for them, and what the last group gets change in one
//!   transaction of the log: a crash leaves the old size or the new one.
//! - Whoever recovers that transaction finds a device that is long enough: the caller extends it first.
//!
//! A file system of version 4 has a log that is not written here. It grows by new groups alone, and its superblock,
//! which is one sector, is written in place.

mod commit;
mod groups;
mod growth;
mod old;

use std::sync::Arc;

use blockdev::BlockDevice;
use vfs::{Error, Result};

use self::groups::{layout, write_groups};
pub use self::growth::Growth;
use crate::Xfs;
use crate::format::superblock::Superblock;
use crate::fs::OpenOptions;
use crate::open::superblock_copy;
use crate::volume::read_superblock;

/// Bytes that a file system has.
///
/// # Errors
/// `Corrupt` for a superblock that cannot be right, and if the device fails.
pub fn size_bytes(device: &dyn BlockDevice) -> Result<u64> {
    let sb = superblock_of(device)?;
    Ok(sb.raw.dblocks.get() << sb.raw.blocklog)
}

/// What a file system would become if it grew to `size_bytes`. Nothing is written, and the device need not be that
/// long yet. If the log of the image holds a growth that was not finished, that is not known here.
///
/// # Errors
/// `Unsupported` for a size smaller than what it has, for more allocation groups than can be kept, and for an image
/// that cannot be changed; `Corrupt` for a superblock that cannot be right.
pub fn plan(device: &dyn BlockDevice, size_bytes: u64) -> Result<Growth> {
    let sb = superblock_of(device)?;
    let growth = Growth::of(&sb, size_bytes)?;
    if sb.features.crc() {
        match sb.read_only_because() {
            Some(reason) => return Err(Error::unsupported(reason, "it cannot be changed here")),
            None => return Ok(growth),
        }
    }
    old::check(device, &sb, &growth)?;
    Ok(growth)
}

/// Grows a file system that nobody has open, in place, to as much of `size_bytes` as makes whole blocks and a last
/// group of the size that mkfs.xfs makes. What its log holds is brought to its place first. What came of it; a size
/// that makes no difference changes nothing.
///
/// The device must be as long as what the file system becomes ([`Growth::bytes_after`]).
///
/// # Errors
/// As [`plan`]; `Invalid` if the device is shorter; `Corrupt` if what has to change is damaged; if the device fails.
/// After an error the file system has its old size, or the new one if the error came from the device at the end; what
/// was written behind its old end means nothing.
pub fn grow(device: Arc<dyn BlockDevice>, size_bytes: u64) -> Result<Growth> {
    let planned = plan(&*device, size_bytes)?;
    if planned.bytes_after() > device.len() {
        let what = "the device is shorter than the file system is to be: extend it first";
        return Err(Error::Invalid(what));
    }
    if !planned.is_change() {
        return Ok(planned);
    }
    let found = superblock_of(&*device)?;
    if !found.features.crc() {
        return old::grow(&*device, &found, planned);
    }
    // As all that changes an image: what a crash left is ended first, and the log is empty then.
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
