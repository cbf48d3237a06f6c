//! Checks of the realtime device when a file system is opened.

use disk::{BlockDevice, DeviceRole};
use vfs::hint::{Advice, Hint, Setting};
use vfs::{Error, Result};

use crate::format::realtime::{RawRealtimeSuperblock, Realtime};
use crate::format::superblock::Superblock;
use crate::volume::read_superblock;

const ADVICE: &str = "name the device with the realtime files of this image";

/// Refuses to change an image whose realtime device is not given.
///
/// # Errors
/// `Unsupported` without the device.
pub(crate) fn require_device(device: &dyn BlockDevice) -> Result<()> {
    // A damaged superblock is reported by the caller.
    let Ok(sb) = read_superblock(device) else { return Ok(()) };
    if sb.raw.rblocks.get() == 0 || device.part_len(DeviceRole::Realtime).is_some() {
        return Ok(());
    }
    let what = "changing an image without its realtime device";
    Err(Error::unsupported(
        what,
        Advice::before("name that device with ", Hint::Use(Setting::REALTIME_DEVICE)),
    ))
}

/// Checks that a realtime device, if one is given, belongs to the image. A device without groups has no
/// mark, so only its length can be checked.
///
/// # Errors
/// `Unsupported` for a device of another file system, one that is too short, or one that the image does not need.
/// `Corrupt` for a damaged superblock of either device.
pub(super) fn check_device(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    let Some(len) = device.part_len(DeviceRole::Realtime) else { return Ok(()) };
    let Some(realtime) = Realtime::of(sb)? else {
        let what = "a realtime device for an image without one";
        return Err(Error::unsupported(what, Hint::LeaveOut(Setting::REALTIME_DEVICE)));
    };
    let needed = realtime.bytes();
    if len < needed {
        let what = format!("a realtime device of {len} bytes for a section of {needed} bytes");
        return Err(Error::unsupported(what, ADVICE));
    }
    if !realtime.has_superblock() {
        return Ok(());
    }
    let mut block = vec![0; 1 << sb.raw.blocklog];
    device.read_at(DeviceRole::Realtime.start(), &mut block).map_err(Error::Device)?;
    let Some(found) = RawRealtimeSuperblock::parse(&block)? else {
        return Err(Error::unsupported("a realtime device without a superblock", ADVICE));
    };
    if found.uuid != sb.raw.uuid {
        let [found, expected] = [found.uuid, sb.raw.uuid].map(u128::from_be_bytes);
        let what =
            format!("a realtime device of file system {found:032x}, expected {expected:032x}");
        return Err(Error::unsupported(what, ADVICE));
    }
    Ok(())
}
