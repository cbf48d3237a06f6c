//! Journals on another device, whose addresses start at [`Part::Log`].

use disk::{BlockDevice, DeviceRole};
use vfs::hint::{Hint, Setting};
use vfs::{Error, Result};
use zerocopy::IntoBytes;

use crate::format::features::Compat;
use crate::format::journal_device::JournalDevice;
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock, uuid_text};

/// Advice for an image whose journal device is not given.
const MISSING: Hint = Hint::NameLog("journal");
/// Length of one write of zeros in bytes.
const ZEROS_MAX: u64 = 1 << 30;

/// Reads the superblock of the journal device.
///
/// # Errors
/// `Unsupported` if the device is missing, or has no journal; `Corrupt` if its superblock is damaged; `Device` if it
/// fails.
pub fn read_device(device: &dyn BlockDevice) -> Result<JournalDevice> {
    let Some(len) = device.part_len(DeviceRole::Log) else {
        return Err(Error::unsupported("an external journal", MISSING));
    };
    let mut raw = RawSuperblock::zeroed();
    if len >= SUPERBLOCK_OFFSET + size_of::<RawSuperblock>() as u64 {
        let offset = DeviceRole::Log.start() + SUPERBLOCK_OFFSET;
        device.read_at(offset, raw.as_mut_bytes()).map_err(Error::Device)?;
    }
    JournalDevice::parse(raw, len)
}

/// Returns the journal device of a file system.
pub(super) fn find(device: &dyn BlockDevice, sb: &Superblock) -> Result<JournalDevice> {
    if device.part_len(DeviceRole::Log).is_none() {
        let uuid = uuid_text(&sb.raw.journal_uuid);
        return Err(Error::unsupported(
            format!("an external journal with the UUID {uuid}"),
            MISSING,
        ));
    }
    let journal = match read_device(device) {
        // The repair of an image cannot help: the device may be that of another image.
        Err(Error::Corrupt(damage)) => {
            let advice = "name the right device; tune2fs makes a new journal if this one is lost";
            return Err(Error::unsupported(damage.to_string(), advice));
        }
        found => found?,
    };
    check_uuid(&journal, &sb.raw.journal_uuid)?;
    check_block_size(&journal, sb)?;
    Ok(journal)
}

fn check_uuid(journal: &JournalDevice, expected: &[u8; 16]) -> Result<()> {
    let found = &journal.raw.uuid;
    if found == expected {
        return Ok(());
    }
    let (found, expected) = (uuid_text(found), uuid_text(expected));
    Err(Error::unsupported(
        format!("a journal device with the UUID {found} for an image with the journal {expected}"),
        "name the device that contains the image's journal",
    ))
}

fn check_block_size(journal: &JournalDevice, sb: &Superblock) -> Result<()> {
    let (found, expected) = (journal.block_size(), sb.block_size());
    if found == expected {
        return Ok(());
    }
    Err(Error::unsupported(
        format!("a journal with blocks of {found} bytes for an image with blocks of {expected}"),
        "make the journal with the block size of the image",
    ))
}

/// Rejects a log device for an image that does not use one.
///
/// # Errors
/// `Unsupported` in that case.
pub(crate) fn refuse_unused(device: &dyn BlockDevice, sb: &Superblock) -> Result<()> {
    if device.part_len(DeviceRole::Log).is_none() || sb.has_external_journal() {
        return Ok(());
    }
    let what = match sb.features.compat(Compat::HAS_JOURNAL) {
        true => "a log device for an image that contains its journal",
        false => "a log device for an image without a journal",
    };
    Err(Error::unsupported(what, Hint::LeaveOut(Setting::LOG_DEVICE)))
}

/// Writes a new journal device without users. Its old contents are lost.
///
/// # Errors
/// `Invalid` if the device is shorter than the plan. `Device` if it fails.
pub fn make_device(device: &dyn BlockDevice, plan: &JournalDevice) -> Result<()> {
    let start = DeviceRole::Log.start();
    let end = u64::from(plan.blocks) << plan.block_size_log;
    if device.part_len(DeviceRole::Log).is_none_or(|len| len < end) {
        return Err(Error::Invalid("the device is shorter than the planned journal"));
    }
    for at in (0..end).step_by(ZEROS_MAX as usize) {
        device.zero_range(start + at, ZEROS_MAX.min(end - at)).map_err(Error::Device)?;
    }
    let mut journal = plan.new_journal();
    journal.seal();
    let offset = u64::from(plan.journal_block()) << plan.block_size_log;
    device.write_at(start + offset, journal.as_bytes()).map_err(Error::Device)?;
    device.flush().map_err(Error::Device)?;
    device.write_at(start + SUPERBLOCK_OFFSET, plan.raw.as_bytes()).map_err(Error::Device)?;
    device.flush().map_err(Error::Device)
}
