//! Recovery: replaying the journal after a crash.

use disk::BlockDevice;
use vfs::{Corruption, Error, Result};
use zerocopy::IntoBytes;

use super::map::JournalMap;
use super::reader::{JournalReader, read_block};
use super::replay::{Log, Revoked, Verified};
use super::scan::{Extent, Scan, damage_at};
use crate::alloc::groups::Trust;
use crate::format::features::Incompat;
use crate::format::jbd2::{
    Checksums, FastCommitScan, FastCommitTag, JournalSuperblock, Scanned, Tid, header,
};
use crate::format::superblock::{RawSuperblock, STATE_ERROR, SUPERBLOCK_OFFSET, Superblock};
use crate::params::read_superblock;
use crate::volume::Volume;

/// Maximum number of fast-commit blocks to read. mke2fs creates 256.
const FAST_COMMIT_BLOCKS_MAX: u32 = 1 << 14;

/// Result of recovery.
#[derive(Debug, Default)]
#[must_use]
pub struct RecoveryReport {
    /// Transactions replayed.
    pub transactions: u32,
    /// Blocks written in place.
    pub blocks_replayed: u64,
    /// Blocks not written because a later transaction had freed them.
    pub blocks_revoked: u64,
    /// Error number that the kernel stored in the journal, if any. The file system is then marked as having errors and
    /// should be checked.
    pub errno: Option<i32>,
    /// Changes since the last transaction that the caller must apply, in order. If there are any, the log is not empty:
    /// see [`Resume`].
    pub fast_commits: Vec<FastCommitTag>,
    /// With fast commits: position at which the log continues.
    pub resume: Option<Resume>,
}

/// Position at which a log that still contains transactions continues.
///
/// Fast commits are valid until the next transaction is in the log. Therefore all of them are applied in one
/// checkpoint, which is written as that transaction: open the log at this position, apply them, write the checkpoint.
/// After a crash before that is durable, they are applied again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    pub(super) head: u32,
    pub(super) next: Tid,
}

/// Replays the journal of the file system on `device`, empties it and clears the recovery flag. Does nothing if no
/// recovery is needed. On success the file system durably has the state of its last complete transaction. Fast commits
/// are not applied but returned in the report.
///
/// # Errors
/// `Unsupported` for a journal on another device that is missing, and for unknown features; `Corrupt` for damage in the superblock, the
/// journal's inode or the log. In both cases nothing was written. `Device` if the device fails; recovery can be
/// retried.
pub fn recover(device: &dyn BlockDevice) -> Result<RecoveryReport> {
    let sb = read_superblock(device)?;
    let is_needed = sb.features.incompat(Incompat::RECOVER);
    let Some(map) = JournalMap::read(device, &sb)? else {
        if is_needed {
            let damage =
                Corruption::new("superblock", "it requests recovery, but there is no journal");
            return Err(damage.into());
        }
        return Ok(RecoveryReport::default());
    };
    let journal = read_journal_superblock(device, &map)?;
    let recovery = Recovery { device, sb: &sb, map: &map, journal: &journal };
    match journal.start {
        Some(start) if is_needed => recovery.replay(start),
        // All blocks were written back; only the journal's superblock was not updated.
        Some(start) => recovery.forget(start),
        None => recovery.clear(journal.sequence),
    }
}

/// Like [`recover`], but for a damaged log: replays the transactions before the damage, and discards the others and all
/// fast commits.
///
/// # Errors
/// Like [`recover`], except for damage in the log.
pub(crate) fn salvage(device: &dyn BlockDevice) -> Result<RecoveryReport> {
    let sb = read_superblock(device)?;
    let Some(map) = JournalMap::read(device, &sb)? else { return Ok(RecoveryReport::default()) };
    let journal = read_journal_superblock(device, &map)?;
    let recovery = Recovery { device, sb: &sb, map: &map, journal: &journal };
    match journal.start {
        Some(start) => recovery.salvage(start),
        None => recovery.clear(journal.sequence),
    }
}

/// Returns the highest transaction number in any journal block, or 0. A new log must start after it.
pub(crate) fn highest_sequence(device: &dyn BlockDevice, map: &JournalMap) -> u32 {
    let mut reader = JournalReader::new(device, map);
    let number = |block| reader.block(block).ok().and_then(header).map_or(0, |(_, tid)| tid.0);
    (map.superblock() + 1..map.blocks()).map(number).max().unwrap_or(0)
}

/// Reads and checks the journal's superblock.
pub(super) fn read_journal_superblock(
    device: &dyn BlockDevice,
    map: &JournalMap,
) -> Result<JournalSuperblock> {
    let block = read_block(device, map, map.superblock())?;
    let journal = JournalSuperblock::parse(&block, map.blocks())?;
    if map.is_external() {
        check_external(map, &journal)?;
    }
    Ok(journal)
}

/// Checks what only a journal on its own device can have wrong.
///
/// # Errors
/// `Unsupported` if several file systems use it. `Corrupt` if the log overlaps the superblocks.
pub(crate) fn check_external(map: &JournalMap, journal: &JournalSuperblock) -> Result<()> {
    let users = journal.raw.users_count();
    if users > 1 {
        return Err(Error::unsupported(
            format!("a journal that {users} file systems use"),
            "kernels and e2fsck refuse it, too; give each image a separate journal with tune2fs",
        ));
    }
    let least = map.superblock() + 1;
    if journal.log.start < least {
        let damage = Corruption::new("journal superblock", "first");
        return Err(damage.mismatch(format!("at least {least}"), journal.log.start).into());
    }
    Ok(())
}

/// Returns the number of file systems that use the journal according to its superblock, or 0 if it does not contain
/// that.
///
/// # Errors
/// `Corrupt` if the journal's superblock is damaged. `Device` if the device fails.
pub(crate) fn users_count(device: &dyn BlockDevice, map: &JournalMap) -> Result<u32> {
    Ok(read_journal_superblock(device, map)?.raw.users_count())
}

/// Writes the journal's superblock.
pub(super) fn write_journal_superblock(
    device: &dyn BlockDevice,
    map: &JournalMap,
    journal: &mut JournalSuperblock,
) -> std::io::Result<()> {
    journal.raw.seal();
    let place = map.place_of(map.superblock());
    let (offset, _) = place.ok_or_else(|| std::io::Error::other("an empty journal"))?;
    device.write_at(offset, journal.raw.as_bytes())
}

struct Recovery<'r> {
    device: &'r dyn BlockDevice,
    sb: &'r Superblock,
    map: &'r JournalMap,
    journal: &'r JournalSuperblock,
}

impl Recovery<'_> {
    fn replay(&self, start: u32) -> Result<RecoveryReport> {
        let mut reader = JournalReader::new(self.device, self.map);
        let extent = Scan::run(self.journal, &mut reader, start)?;
        let may_be_interrupted = self.journal.layout.async_commit;
        let skip_damaged = None;
        let (sb, map) = (self.journal, self.map);
        let mut log = Log { sb, map, start, extent, may_be_interrupted, skip_damaged };
        let device_blocks = self.device.len() >> self.sb.block_size_log;
        let (revoked, verified) = loop {
            let revoked = log.revoked(&mut reader, device_blocks)?;
            match log.verify(&mut reader, &revoked)? {
                Ok(verified) => break (revoked, verified),
                // The revokes of that transaction do not count either.
                Err(_) => {
                    log.extent = log.extent.without_last();
                    log.may_be_interrupted = false;
                }
            }
        };
        self.check_targets(&verified)?;
        let fast_commits = self.fast_commits(&mut reader, log.extent.end)?;
        let counts = log.replay(&mut reader, &revoked, self.device)?;
        self.device.flush().map_err(Error::Device)?;
        let report = RecoveryReport {
            transactions: log.extent.transactions,
            blocks_replayed: counts.replayed,
            blocks_revoked: counts.revoked,
            ..RecoveryReport::default()
        };
        if fast_commits.is_empty() {
            return Ok(RecoveryReport {
                errno: self.clear(log.extent.end.next())?.errno,
                ..report
            });
        }
        let Extent { head, end, .. } = log.extent;
        let resume = Some(Resume { head, next: end });
        Ok(RecoveryReport { fast_commits, resume, errno: self.errno(), ..report })
    }

    /// Replays the images with valid checksums, if the log has checksums; otherwise the transactions before the first
    /// damage.
    fn salvage(&self, start: u32) -> Result<RecoveryReport> {
        let mut reader = JournalReader::new(self.device, self.map);
        let all = Scan::run_to(self.journal, &mut reader, start, u32::MAX).transactions;
        let has_checksums = matches!(self.journal.layout.checksums, Checksums::V2 | Checksums::V3);
        let blocks = (self.device.len() >> self.sb.block_size_log).min(self.sb.blocks_count);
        if has_checksums
            && let Ok((log, revoked)) = self.prefix(&mut reader, start, all, Some(blocks))
        {
            return self.replay_salvaged(&mut reader, &log, &revoked);
        }
        // Bisects for the first transaction that is damaged.
        let (mut sound, mut damaged) = (0, all + 1);
        while damaged - sound > 1 {
            let middle = sound + (damaged - sound) / 2;
            let is_sound = self.sound_prefix(&mut reader, start, middle).is_ok();
            if is_sound { sound = middle } else { damaged = middle }
        }
        let (log, revoked) = self.sound_prefix(&mut reader, start, sound)?;
        self.replay_salvaged(&mut reader, &log, &revoked)
    }

    /// Replays a damaged log and empties it.
    fn replay_salvaged(
        &self,
        reader: &mut JournalReader<'_>,
        log: &Log<'_>,
        revoked: &Revoked,
    ) -> Result<RecoveryReport> {
        let mut report =
            RecoveryReport { transactions: log.extent.transactions, ..RecoveryReport::default() };
        if report.transactions > 0 {
            let counts = log.replay(reader, revoked, self.device)?;
            (report.blocks_replayed, report.blocks_revoked) = (counts.replayed, counts.revoked);
        }
        // Choose a number after all that the log can contain, so that no old block is taken for a new one.
        let end = Tid(self.journal.sequence.0.wrapping_add(self.map.blocks()));
        Ok(RecoveryReport { errno: self.clear(end)?.errno, ..report })
    }

    /// Returns the first `count` transactions if they are valid.
    fn sound_prefix(
        &self,
        reader: &mut JournalReader<'_>,
        start: u32,
        count: u32,
    ) -> Result<(Log<'_>, Revoked)> {
        self.prefix(reader, start, count, None)
    }

    /// Returns the first `count` transactions if they are valid, apart from skipped images.
    fn prefix(
        &self,
        reader: &mut JournalReader<'_>,
        start: u32,
        count: u32,
        skip_damaged: Option<u64>,
    ) -> Result<(Log<'_>, Revoked)> {
        let extent = Scan::run_to(self.journal, reader, start, count);
        let (sb, map) = (self.journal, self.map);
        let log = Log { sb, map, start, extent, may_be_interrupted: false, skip_damaged };
        let device_blocks = self.device.len() >> self.sb.block_size_log;
        let revoked = log.revoked(reader, device_blocks)?;
        if let Ok(verified) = log.verify(reader, &revoked)? {
            self.check_targets(&verified)?;
        }
        Ok((log, revoked))
    }

    /// Checks that all target blocks are in the file system. If the log contains a superblock, its size counts, because
    /// the file system may just have grown.
    fn check_targets(&self, verified: &Verified) -> Result<()> {
        let mut blocks_count = self.sb.blocks_count;
        if let Some(bytes) = &verified.superblock {
            let sb = Superblock::parse(bytes, self.device.len())?;
            if sb.block_size_log != self.sb.block_size_log {
                let damage = Corruption::new("superblock", "block size in the journal");
                return Err(damage.mismatch(self.sb.block_size(), sb.block_size()).into());
            }
            blocks_count = blocks_count.max(sb.blocks_count);
        }
        match verified.highest {
            Some((block, image, tid)) if block.0 >= blocks_count => {
                let problem = "a block outside the file system";
                let damage = damage_at("journal descriptor block", problem, image, tid);
                Err(damage.mismatch(format_args!("below {blocks_count}"), block).into())
            }
            _ => Ok(()),
        }
    }

    fn fast_commits(
        &self,
        reader: &mut JournalReader<'_>,
        next: Tid,
    ) -> Result<Vec<FastCommitTag>> {
        let area = self.journal.fast_commit.clone();
        let mut scan = FastCommitScan::new(next, self.sb.inode_size);
        for block in area.clone() {
            let found = scan.block(reader.block(block)?);
            let damage = |c: Corruption| damage_at("fast commit", &c.to_string(), block, next);
            if found.map_err(damage)? == Scanned::End {
                break;
            }
            if block - area.start >= FAST_COMMIT_BLOCKS_MAX {
                return Err(Error::unsupported(
                    format!("more than {FAST_COMMIT_BLOCKS_MAX} blocks of fast commits"),
                    "replay the journal with the kernel or e2fsck",
                ));
            }
        }
        Ok(scan.finish())
    }

    /// Empties the log without replaying it.
    fn forget(&self, start: u32) -> Result<RecoveryReport> {
        let mut reader = JournalReader::new(self.device, self.map);
        // Choose a number after all that the log can contain, so that no old block is taken for a new one.
        let end = match Scan::run(self.journal, &mut reader, start) {
            Ok(extent) => extent.end,
            Err(Error::Corrupt(_)) => Tid(self.journal.sequence.0.wrapping_add(self.map.blocks())),
            Err(other) => return Err(other),
        };
        self.clear(end.next())
    }

    fn errno(&self) -> Option<i32> {
        let errno = self.journal.raw.errno.get() as i32;
        (errno != 0).then_some(errno)
    }

    /// Marks the journal as empty and the file system as recovered, if necessary.
    fn clear(&self, sequence: Tid) -> Result<RecoveryReport> {
        let errno = self.errno();
        if self.journal.start.is_some() || errno.is_some() {
            let mut journal = self.journal.clone();
            journal.raw.start = 0.into();
            journal.raw.sequence = sequence.0.into();
            journal.raw.errno = 0.into();
            // The file system must record the error before the journal is cleared.
            self.write_superblock(errno.is_some(), true)?;
            write_journal_superblock(self.device, self.map, &mut journal).map_err(Error::Device)?;
            self.device.flush().map_err(Error::Device)?;
        }
        self.write_superblock(errno.is_some(), false)?;
        Ok(RecoveryReport { errno, ..RecoveryReport::default() })
    }

    /// Updates the file system's superblock, which the replay may have overwritten. Keeps the fields that the kernel
    /// writes without the journal, and sets whether recovery is needed.
    fn write_superblock(&self, has_error: bool, needs_recovery: bool) -> Result<()> {
        let mut raw = RawSuperblock::zeroed();
        self.device.read_at(SUPERBLOCK_OFFSET, raw.as_mut_bytes()).map_err(Error::Device)?;
        let was = raw.clone();
        let mut features = raw.features();
        let mut incompat = features.incompat;
        incompat.set(Incompat::RECOVER, needs_recovery && incompat.contains(Incompat::RECOVER));
        features.incompat = incompat;
        raw.set_features(&features);
        let error = if has_error { STATE_ERROR } else { self.sb.raw.state.get() & STATE_ERROR };
        raw.state = (raw.state.get() | error).into();
        keep_errors(&mut raw, &self.sb.raw);
        if !needs_recovery && incompat != was.features().incompat {
            self.count_free(&mut raw);
        }
        if raw.as_bytes() == was.as_bytes() {
            return Ok(());
        }
        raw.seal();
        self.device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(Error::Device)?;
        self.device.flush().map_err(Error::Device)
    }

    /// Updates the free counts from the groups, because the kernel does not log them. Damaged groups are ignored here.
    fn count_free(&self, raw: &mut RawSuperblock) {
        if let Ok(volume) = Volume::read(self.device, Trust::Checksums) {
            let (clusters, inodes) = volume.groups.totals();
            raw.set_free_blocks(clusters << volume.sb.cluster_blocks_log);
            raw.free_inodes_count = (inodes as u32).into();
        }
    }
}

/// Keeps the error record, which is written without the journal: it may be newer than the one in the log.
fn keep_errors(raw: &mut RawSuperblock, before: &RawSuperblock) {
    let record = std::mem::offset_of!(RawSuperblock, error_count)
        ..std::mem::offset_of!(RawSuperblock, mount_opts);
    if before.error_count > raw.error_count {
        raw.as_mut_bytes()[record.clone()].copy_from_slice(&before.as_bytes()[record]);
    }
}
