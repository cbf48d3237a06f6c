//! Journals on another device, whose addresses start at [`Part::Log`].

use disk::{BlockDevice, Part};
use vfs::{Error, Result};
use zerocopy::IntoBytes;

use super::map::JournalMap;
use super::recover::{read_journal_superblock, write_journal_superblock};
use crate::format::features::Compat;
use crate::format::jbd2::JournalSuperblock;
use crate::format::journal_device::JournalDevice;
use crate::format::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock, uuid_text};

/// Advice for an image whose journal device is not given.
const MISSING: &str = "name its device with --log-device FILE, or read the image without its \
                       journal: --norecovery";
/// Length of one write of zeros in bytes.
const ZEROS_MAX: u64 = 1 << 30;

/// Reads the superblock of the journal device.
///
/// # Errors
/// `Unsupported` if the device is missing, or has no journal; `Corrupt` if its superblock is damaged; `Device` if it
/// fails.
pub fn read_device(device: &dyn BlockDevice) -> Result<JournalDevice> {
    let Some(len) = device.part_len(Part::Log) else {
        return Err(Error::unsupported("an external journal", MISSING));
    };
    let mut raw = RawSuperblock::zeroed();
    if len >= SUPERBLOCK_OFFSET + size_of::<RawSuperblock>() as u64 {
        let offset = Part::Log.start() + SUPERBLOCK_OFFSET;
        device.read_at(offset, raw.as_mut_bytes()).map_err(Error::Device)?;
    }
    JournalDevice::parse(raw, len)
}

/// Returns the map of the journal on another device.
pub(super) fn map(device: &dyn BlockDevice, sb: &Superblock) -> Result<JournalMap> {
    if device.part_len(Part::Log).is_none() {
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
    Ok(JournalMap::of_device(&journal))
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
    if device.part_len(Part::Log).is_none() || sb.has_external_journal() {
        return Ok(());
    }
    let what = match sb.features.compat(Compat::HAS_JOURNAL) {
        true => "a log device for an image that contains its journal",
        false => "a log device for an image without a journal",
    };
    Err(Error::unsupported(what, "leave --log-device out"))
}

/// Checks what only a journal on its own device can have wrong.
///
/// # Errors
/// `Unsupported` if several file systems use it. `Corrupt` if the log overlaps the superblocks.
pub(crate) fn check(map: &JournalMap, journal: &JournalSuperblock) -> Result<()> {
    let users = journal.raw.users_count();
    if users > 1 {
        return Err(Error::unsupported(
            format!("a journal that {users} file systems use"),
            "kernels and e2fsck refuse it, too; give each image a separate journal with tune2fs",
        ));
    }
    let least = map.superblock() + 1;
    if journal.log.start < least {
        let damage = vfs::Corruption::new("journal superblock", "first");
        return Err(damage.mismatch(format!("at least {least}"), journal.log.start).into());
    }
    Ok(())
}

/// Writes a new journal device without users. Its old contents are lost.
///
/// # Errors
/// `Invalid` if the device is shorter than the plan. `Device` if it fails.
pub fn make_device(device: &dyn BlockDevice, plan: &JournalDevice) -> Result<()> {
    let start = Part::Log.start();
    let end = u64::from(plan.blocks) << plan.block_size_log;
    if device.part_len(Part::Log).is_none_or(|len| len < end) {
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

/// Reads a journal device for a file system that does not use it yet. Returns its superblock.
///
/// # Errors
/// Like [`read_device`]; `Unsupported` if another file system than `uuid` uses it, or if it contains changes; `Invalid`
/// for another block size.
pub fn free_device(
    device: &dyn BlockDevice,
    block_size: u32,
    uuid: Option<[u8; 16]>,
) -> Result<JournalDevice> {
    let found = read_device(device)?;
    if found.block_size() != block_size {
        let (theirs, ours) = (found.block_size(), block_size);
        return Err(Error::unsupported(
            format!("a journal with blocks of {theirs} bytes for an image with blocks of {ours}"),
            "make the journal with the block size of the image",
        ));
    }
    let journal = read_journal_superblock(device, &JournalMap::of_device(&found))?;
    let is_used = journal.raw.users_count() > 0 && Some(journal.raw.user()) != uuid;
    if is_used {
        return Err(Error::unsupported(
            format!("a journal that the file system {} uses", uuid_text(&journal.raw.user())),
            "remove it there with tune2fs -O ^has_journal, or make a new one with mke2fs",
        ));
    }
    if journal.start.is_some() {
        return Err(Error::unsupported(
            "a journal with changes that were not replayed",
            "replay it with its file system, or make a new one with mke2fs",
        ));
    }
    Ok(found)
}

/// Records the file system that uses the journal on another device, or that none does.
///
/// # Errors
/// Like [`JournalMap::read`]; `Corrupt` if the journal superblock is damaged.
pub(crate) fn set_user(
    device: &dyn BlockDevice,
    sb: &Superblock,
    uuid: Option<[u8; 16]>,
) -> Result<()> {
    let map = map(device, sb)?;
    let mut journal = read_journal_superblock(device, &map)?;
    journal.raw.set_user(uuid);
    write_journal_superblock(device, &map, &mut journal).map_err(Error::Device)
}
