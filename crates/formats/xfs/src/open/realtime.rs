//! Checks of the realtime device when a file system is opened.

use disk::{BlockDevice, DeviceRole};
use vfs::hint::{Advice, Hint, Setting};
use vfs::{Corruption, Error, Result};

use crate::format::features::Incompat;
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
    // A zoned device cannot be changed at all, which the caller reports.
    let is_zoned = sb.features.incompat(Incompat::ZONED);
    if is_zoned || sb.raw.rblocks.get() == 0 || device.part_len(DeviceRole::Realtime).is_some() {
        return Ok(());
    }
    let what = "changing an image without its realtime device";
    Err(Error::unsupported(
        what,
        Advice::before("name that device with ", Hint::Use(Setting::REALTIME_DEVICE)),
    ))
}

/// Writes the superblock of the realtime groups, which contains label and UUID of the image, if there is one.
///
/// # Errors
/// `Corrupt` for a damaged superblock of the image; `Device` if the device fails.
pub(crate) fn write_superblock(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    let has_superblock = Realtime::of(sb)?.is_some_and(|it| it.has_superblock());
    if !has_superblock || device.part_len(DeviceRole::Realtime).is_none() {
        return Ok(());
    }
    let block = RawRealtimeSuperblock::block(sb);
    device.write_at(DeviceRole::Realtime.start(), &block).map_err(Error::Device)?;
    device.flush().map_err(Error::Device)
}

/// Checks that a realtime device, if one is given, belongs to the image. A device without groups has no
/// mark, so only its length can be checked.
///
/// # Errors
/// `Unsupported` for a device of another file system, one that is too short, or one that the image does not need.
/// `Corrupt` for a damaged superblock of either device.
pub(super) fn check_device(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    let found = Realtime::of(sb)?;
    if let Some(internal) = found.filter(Realtime::is_internal) {
        let end = internal.byte_of(0).saturating_add(internal.bytes());
        if end > device.len() {
            let damage = Corruption::new("superblock", "rtstart (the image is truncated)");
            return Err(damage
                .mismatch(format_args!("an image of {end} bytes"), device.len())
                .into());
        }
    }
    let Some(len) = device.part_len(DeviceRole::Realtime) else { return Ok(()) };
    let Some(realtime) = found.filter(|it| !it.is_internal()) else {
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
