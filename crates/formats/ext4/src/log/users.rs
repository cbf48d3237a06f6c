//! The file system that uses a journal on another device.

use disk::BlockDevice;
use vfs::{Error, Result};

use super::device::{find, read_device};
use super::map::JournalMap;
use super::recover::{read_journal_superblock, write_journal_superblock};
use crate::format::journal_device::JournalDevice;
use crate::format::superblock::{Superblock, uuid_text};

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
    let map = JournalMap::of_device(&find(device, sb)?);
    let mut journal = read_journal_superblock(device, &map)?;
    journal.raw.set_user(uuid);
    write_journal_superblock(device, &map, &mut journal).map_err(Error::Device)
}
