//! Lines of `dumpe2fs` from the journal superblock and the multiple mount protection block.

use std::fmt::Write;
use std::sync::Arc;

use disk::BlockDevice;
use ext4::format::address::FileBlock;
use ext4::format::features::{Compat, Incompat};
use ext4::format::jbd2::{
    FAST_COMMIT_BLOCKS_DEFAULT, JournalCompat, JournalIncompat, RawJournalSuperblock,
    SUPERBLOCK_SIZE,
};
use ext4::format::journal_device::{JournalDevice, is_journal_device};
use ext4::format::superblock::Superblock;
use ext4::{Ext4, OpenOptions};
use vfs::Ino;

use super::header::{self, line, local_time, scaled, text};
use crate::foreign;
use crate::target::ImageTarget;

/// Journal features with the names of dumpe2fs.
const FEATURES: [(&str, &str); 7] = [
    ("CHECKSUM", "journal_checksum"),
    ("REVOKE", "journal_incompat_revoke"),
    ("BIT64", "journal_64bit"),
    ("ASYNC_COMMIT", "journal_async_commit"),
    ("CSUM_V2", "journal_checksum_v2"),
    ("CSUM_V3", "journal_checksum_v3"),
    ("FAST_COMMIT", "fast_commit"),
];

/// Returns the lines, or none if the file system has neither or they are unreadable.
pub(crate) fn lines(device: &Arc<dyn BlockDevice>, superblock: &Superblock) -> String {
    let mut out = String::new();
    if superblock.features.compat.contains(Compat::HAS_JOURNAL)
        && let Some(raw) = read(device, superblock)
    {
        journal(&mut out, &raw, superblock.features.compat.contains(Compat::FAST_COMMIT));
    }
    if superblock.features.incompat(Incompat::MMP) {
        mmp(&mut out, device.as_ref(), superblock);
    }
    out
}

/// Returns the lines for a journal device; `None` if the image is none, or is damaged.
pub(super) fn device_lines(image: &ImageTarget) -> Option<String> {
    let device = foreign::open(&image.path, image.offset).ok()?;
    let raw = foreign::raw_superblock(&*device)?;
    if !is_journal_device(&raw) {
        return None;
    }
    let found = JournalDevice::parse(raw, device.len()).ok()?;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let at = u64::from(found.journal_block()) << found.block_size_log;
    device.read_at(at, &mut bytes).ok()?;
    let journal_superblock = RawJournalSuperblock::parse(&bytes).ok()?;
    let mut out = header::lines(&found.raw);
    journal(&mut out, &journal_superblock, false);
    if journal_superblock.users_count() > 0 {
        let user = uuid::Uuid::from_bytes(journal_superblock.user());
        line(&mut out, "Journal users", user);
    }
    Some(out)
}

/// Reads the journal superblock from the first block of the journal inode.
fn read(device: &Arc<dyn BlockDevice>, superblock: &Superblock) -> Option<RawJournalSuperblock> {
    let open = OpenOptions { norecovery: true, ..OpenOptions::default() };
    let fs = Ext4::open(device.clone(), &open).ok()?;
    let inode = Ino(u64::from(superblock.raw.journal_inum.get()));
    let start = fs.block_run(inode, FileBlock(0)).ok()?.start?;
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(fs.geometry().byte_of(start), &mut bytes).ok()?;
    RawJournalSuperblock::parse(&bytes).ok()
}

fn journal(out: &mut String, raw: &RawJournalSuperblock, has_fast_commits: bool) {
    let (compat, incompat) = (raw.compat(), raw.incompat());
    let names = compat
        .iter_names()
        .map(|(name, _)| name)
        .chain(incompat.iter_names().map(|(name, _)| name));
    let names = names.filter_map(|name| FEATURES.iter().find(|(ours, _)| *ours == name));
    let names = names.map(|(_, theirs)| *theirs).collect::<Vec<_>>().join(" ");
    let blocks = raw.maxlen.get();
    let fast_commit = match raw.num_fc_blks.get() {
        0 if incompat.contains(JournalIncompat::FAST_COMMIT) => FAST_COMMIT_BLOCKS_DEFAULT,
        _ if !has_fast_commits => 0,
        blocks => blocks,
    };
    line(out, "Journal features", if names.is_empty() { "(none)" } else { &names });
    let kbytes = u64::from(blocks) * u64::from(raw.blocksize.get()) / 1024;
    line(out, "Total journal size", scaled(kbytes, "k"));
    line(out, "Total journal blocks", blocks);
    line(out, "Max transaction length", blocks.saturating_sub(fast_commit));
    line(out, "Fast commit length", fast_commit);
    if raw.first.get() != 1 {
        line(out, "Journal first block", raw.first);
    }
    line(out, "Journal sequence", format_args!("{:#010x}", raw.sequence.get()));
    line(out, "Journal start", raw.start);
    if raw.users_count() != 1 {
        line(out, "Journal number of users", raw.users_count());
    }
    if compat.contains(JournalCompat::CHECKSUM) {
        line(out, "Journal checksum type", "crc32");
    }
    if incompat.intersects(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3) {
        line(out, "Journal checksum type", "crc32c");
        line(out, "Journal checksum", format_args!("{:#010x}", raw.checksum.get()));
    }
    if raw.errno.get() != 0 {
        line(out, "Journal errno", raw.errno.get().cast_signed());
    }
}

fn mmp(out: &mut String, device: &dyn BlockDevice, superblock: &Superblock) {
    let mut bytes = [0; 128];
    let place = superblock.raw.mmp_block.get().checked_mul(u64::from(superblock.block_size()));
    if place.is_none_or(|place| device.read_at(place, &mut bytes).is_err()) {
        return;
    }
    let word =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let time = u64::from(word(12)) << 32 | u64::from(word(8));
    let _ = write!(
        out,
        "MMP_block:\n    mmp_magic: {:#x}\n    mmp_check_interval: {}\n    mmp_sequence: {:#08x}\n    \
         mmp_update_date: {}\n    mmp_update_time: {time}\n    mmp_node_name: {}\n    mmp_device_name: {}\n",
        word(0),
        word(112) & 0xffff,
        word(4),
        local_time(time.cast_signed()),
        text(&bytes[16..80]),
        text(&bytes[80..112]),
    );
}
