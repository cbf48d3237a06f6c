//! The journal's superblock, which is its first block.

use std::ops::Range;

use vfs::{Corruption, Error, Result};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::features::{JournalCompat, JournalIncompat};
use super::layout::{JournalLayout, UUID_SIZE};
use super::{BlockType, MAGIC, Tid};
use crate::format::checksum::crc32c;

/// Size of the superblock in bytes.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// Minimum number of blocks of a journal.
pub(crate) const BLOCKS_MIN: u32 = 1024;
/// Default size of the fast-commit area in blocks.
pub const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
/// `s_checksum_type` of CRC-32C, the only one that versions 2 and 3 use.
const CHECKSUM_TYPE_CRC32C: u8 = 4;
/// Size of the fields of version-1 superblocks in bytes; the rest of the block is undefined.
const V1_SIZE: usize = 0x24;

/// The journal superblock on disk. Field names as in the format document, without `s_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "names as in the format documentation")]
pub struct RawJournalSuperblock {
    pub h_magic: U32,
    pub h_blocktype: U32,
    pub h_sequence: U32,
    pub blocksize: U32,
    pub maxlen: U32,
    pub first: U32,
    pub sequence: U32,
    pub start: U32,
    pub errno: U32,
    pub feature_compat: U32,
    pub feature_incompat: U32,
    pub feature_ro_compat: U32,
    pub uuid: [u8; 16],
    pub nr_users: U32,
    pub dynsuper: U32,
    pub max_transaction: U32,
    pub max_trans_data: U32,
    pub checksum_type: u8,
    pub padding2: [u8; 3],
    pub num_fc_blks: U32,
    pub head: U32,
    pub padding: [U32; 40],
    pub checksum: U32,
    pub users: [u8; 16 * 48],
}

const _: () = assert!(size_of::<RawJournalSuperblock>() == SUPERBLOCK_SIZE);
const _: () = assert!(std::mem::offset_of!(RawJournalSuperblock, checksum) == 0xfc);

impl RawJournalSuperblock {
    /// Returns the superblock of an empty journal of `blocks` blocks inside the file system `uuid`. It has no features:
    /// the first kernel that mounts the file system sets those that it uses.
    #[must_use]
    pub(crate) fn empty(block_size: u32, blocks: u32, uuid: [u8; 16]) -> Self {
        let mut raw = Self::new_zeroed();
        raw.h_magic = MAGIC.into();
        raw.h_blocktype = (BlockType::SuperblockV2 as u32).into();
        raw.blocksize = block_size.into();
        raw.maxlen = blocks.into();
        raw.first = 1.into();
        raw.sequence = 1.into();
        raw.uuid = uuid;
        raw.nr_users = 1.into();
        raw
    }

    /// Reads the superblock from the journal's first block. Checks only the magic number and the type;
    /// [`JournalSuperblock::parse`] checks the rest.
    ///
    /// # Errors
    /// `Corrupt` if it is not a journal superblock.
    pub fn parse(block: &[u8]) -> Result<Self> {
        let Ok((raw, _)) = Self::read_from_prefix(block) else {
            return Err(Corruption::new(STRUCTURE, "truncated").into());
        };
        if raw.h_magic != MAGIC {
            let found = format!("{:#010x}", raw.h_magic.get());
            return Err(damage("magic number", format!("{MAGIC:#010x}"), found));
        }
        let block_type = raw.h_blocktype.get();
        if ![BlockType::SuperblockV1 as u32, BlockType::SuperblockV2 as u32].contains(&block_type) {
            return Err(damage("block type", "3 or 4", block_type));
        }
        Ok(raw)
    }

    /// Returns whether the journal contains changes to replay.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.start != 0
    }

    /// Returns the number of file systems that use the journal; 0 if the superblock does not contain it.
    #[must_use]
    pub fn users_count(&self) -> u32 {
        if self.is_v2() { self.nr_users.get() } else { 0 }
    }

    /// Returns the UUID of the first file system that uses the journal. An internal journal stores none.
    #[must_use]
    pub fn user(&self) -> [u8; UUID_SIZE] {
        self.users.first_chunk().copied().filter(|_| self.is_v2()).unwrap_or_default()
    }

    /// Makes one file system the only user of the journal, or none.
    pub fn set_user(&mut self, uuid: Option<[u8; UUID_SIZE]>) {
        self.upgrade();
        self.nr_users = u32::from(uuid.is_some()).into();
        self.users.fill(0);
        self.users[..UUID_SIZE].copy_from_slice(&uuid.unwrap_or_default());
    }

    /// Updates the checksum, if the journal has one.
    pub fn seal(&mut self) {
        let checksums = JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3;
        if self.is_v2() && self.incompat().intersects(checksums) {
            self.checksum_type = CHECKSUM_TYPE_CRC32C;
            self.checksum = self.computed_checksum().into();
        }
    }

    /// Converts a version-1 superblock to version 2, without features.
    pub(crate) fn upgrade(&mut self) {
        if !self.is_v2() {
            self.as_mut_bytes()[V1_SIZE..].fill(0);
            self.h_blocktype = (BlockType::SuperblockV2 as u32).into();
            self.nr_users = 1.into();
        }
    }

    /// Replaces the feature sets.
    pub(crate) fn set_features(&mut self, compat: JournalCompat, incompat: JournalIncompat) {
        self.feature_compat = compat.bits().into();
        self.feature_incompat = incompat.bits().into();
    }

    /// Returns whether there are feature fields.
    fn is_v2(&self) -> bool {
        self.h_blocktype == BlockType::SuperblockV2 as u32
    }

    /// Returns the compatible features.
    #[must_use]
    pub fn compat(&self) -> JournalCompat {
        let bits = if self.is_v2() { self.feature_compat.get() } else { 0 };
        JournalCompat::from_bits_retain(bits)
    }

    /// Returns the incompatible features.
    #[must_use]
    pub fn incompat(&self) -> JournalIncompat {
        let bits = if self.is_v2() { self.feature_incompat.get() } else { 0 };
        JournalIncompat::from_bits_retain(bits)
    }

    fn computed_checksum(&self) -> u32 {
        let at = std::mem::offset_of!(Self, checksum);
        let bytes = self.as_bytes();
        let crc = crc32c(crc32c(u32::MAX, &bytes[..at]), &[0; 4]);
        crc32c(crc, &bytes[at + 4..])
    }
}

const STRUCTURE: &str = "journal superblock";

fn damage(
    field: &'static str,
    expected: impl std::fmt::Display,
    found: impl std::fmt::Display,
) -> Error {
    Corruption::new(STRUCTURE, field).mismatch(expected, found).into()
}

/// A journal superblock whose values are consistent with each other and the file system.
#[derive(Clone, Debug)]
pub struct JournalSuperblock {
    /// Raw superblock, which can be changed and written back.
    pub raw: RawJournalSuperblock,
    /// Layout of the journal's blocks.
    pub layout: JournalLayout,
    /// Journal blocks of the circular log.
    pub log: Range<u32>,
    /// Journal blocks of the fast-commit area.
    pub fast_commit: Range<u32>,
    /// Journal block of the first transaction to replay; `None` if the log is empty.
    pub start: Option<u32>,
    /// Sequence number of that transaction, or of the last one if the log is empty.
    pub sequence: Tid,
}

impl JournalSuperblock {
    /// Parses the superblock at the start of `block`, the first block of a journal with `blocks` blocks of
    /// `block.len()` bytes.
    ///
    /// # Errors
    /// `Unsupported` for unknown features; `Corrupt` for the first invalid value.
    pub fn parse(block: &[u8], blocks: u32) -> Result<Self> {
        let raw = RawJournalSuperblock::parse(block)?;
        check_features(&raw)?;
        if raw.blocksize.get() as usize != block.len() {
            return Err(damage("block size", block.len(), raw.blocksize));
        }
        let maxlen = raw.maxlen.get();
        if !(BLOCKS_MIN..=blocks).contains(&maxlen) {
            return Err(damage("maxlen", format!("{BLOCKS_MIN} to {blocks}"), maxlen));
        }
        let (log_end, fast_commit) = split_off_fast_commits(&raw)?;
        let first = raw.first.get();
        let first_max = log_end + 1 - BLOCKS_MIN;
        if first == 0 || first > first_max {
            return Err(damage("first", format!("1 to {first_max}"), first));
        }
        let start = raw.start.get();
        let log = first..log_end;
        if start != 0 && !log.contains(&start) {
            return Err(damage("start", format!("0 or {first} to {}", log_end - 1), start));
        }
        Ok(Self {
            layout: JournalLayout::new(block.len(), raw.compat(), raw.incompat(), uuid(&raw)),
            log,
            fast_commit,
            start: (start != 0).then_some(start),
            sequence: Tid(raw.sequence.get()),
            raw,
        })
    }

    /// Returns the number of blocks of the log.
    #[must_use]
    pub(crate) fn log_blocks(&self) -> u32 {
        self.log.end - self.log.start
    }

    /// Returns the log's block `count` after `block`, with wrap-around. `count` is at most [`Self::log_blocks`].
    #[must_use]
    pub(crate) fn after(&self, block: u32, count: u32) -> u32 {
        let position = u64::from(block - self.log.start) + u64::from(count);
        self.log.start + (position % u64::from(self.log_blocks())) as u32
    }

    /// Switches to the features for writing this file system: revoke blocks; 64-bit block numbers if `wide`; and
    /// checksums if its metadata has them. The log must be empty.
    pub(crate) fn modernize(&mut self, wide: bool, checksums: bool) {
        self.raw.upgrade();
        let mut incompat = self.raw.incompat() | JournalIncompat::REVOKE;
        incompat.remove(JournalIncompat::ASYNC_COMMIT | JournalIncompat::CSUM_V2);
        // Keep 64-bit block numbers if the log already has them.
        incompat.set(JournalIncompat::BIT64, wide || incompat.contains(JournalIncompat::BIT64));
        incompat.set(JournalIncompat::CSUM_V3, checksums);
        self.raw.set_features(JournalCompat::empty(), incompat);
        if !checksums {
            self.raw.checksum_type = 0;
            self.raw.checksum = 0.into();
        }
        let size = self.layout.block_size;
        self.layout = JournalLayout::new(size, self.raw.compat(), incompat, uuid(&self.raw));
    }
}

fn uuid(raw: &RawJournalSuperblock) -> [u8; 16] {
    if raw.is_v2() { raw.uuid } else { [0; 16] }
}

/// Checks the features, and the checksum if there is one.
fn check_features(raw: &RawJournalSuperblock) -> Result<()> {
    let (compat, incompat) = (raw.compat(), raw.incompat());
    let both = JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3;
    if incompat.intersects(both) {
        // Check the checksum first: if it is wrong, the feature bits cannot be trusted.
        let computed = raw.computed_checksum();
        if raw.checksum != computed {
            let stored = raw.checksum.get();
            return Err(Corruption::checksum(STRUCTURE, computed, stored).into());
        }
    }
    let unknown = incompat.difference(JournalIncompat::all()).bits();
    let unknown_ro = if raw.is_v2() { raw.feature_ro_compat.get() } else { 0 };
    if unknown != 0 || unknown_ro != 0 {
        let what = format!("the journal has features {unknown:#x} and {unknown_ro:#x}");
        return Err(Error::unsupported(what, "replay it with the kernel that created it"));
    }
    if !incompat.intersects(both) {
        return Ok(());
    }
    if incompat.contains(both) || compat.contains(JournalCompat::CHECKSUM) {
        let found = format!("{:#x} and {:#x}", compat.bits(), incompat.bits());
        return Err(damage("features", "checksums of a single version", found));
    }
    if raw.checksum_type != CHECKSUM_TYPE_CRC32C {
        return Err(damage("checksum type", CHECKSUM_TYPE_CRC32C, raw.checksum_type));
    }
    Ok(())
}

/// Returns the end of the log, and the blocks for fast commits after it. As in the kernel, one block between the two
/// stays unused.
fn split_off_fast_commits(raw: &RawJournalSuperblock) -> Result<(u32, Range<u32>)> {
    let maxlen = raw.maxlen.get();
    if !raw.incompat().contains(JournalIncompat::FAST_COMMIT) {
        return Ok((maxlen, maxlen..maxlen));
    }
    let blocks = match raw.num_fc_blks.get() {
        0 => FAST_COMMIT_BLOCKS_DEFAULT,
        blocks => blocks,
    };
    match maxlen.checked_sub(blocks) {
        Some(end) if end >= BLOCKS_MIN => Ok((end, end + 1..maxlen)),
        // A journal that is too small for both has no fast-commit area.
        Some(_) => Ok((maxlen, maxlen..maxlen)),
        None => Err(damage("num_fc_blks", format!("at most {maxlen}"), blocks)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_journal_starts_as_mke2fs_writes_it() {
        let raw = RawJournalSuperblock::empty(4096, 0x2000, [0xb9; 16]);
        let expected = [
            0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x20, 0, 0, 0, 0,
            1, 0, 0, 0, 1, 0, 0, 0, 0,
        ];
        assert_eq!(raw.as_bytes()[..expected.len()], expected);
        assert_eq!(raw.as_bytes()[0x40..0x44], [0, 0, 0, 1]);
        assert!(!RawJournalSuperblock::parse(raw.as_bytes()).unwrap().is_dirty());
    }

    #[test]
    fn other_blocks_are_no_superblock() {
        assert!(RawJournalSuperblock::parse(&[0; 1024]).is_err());
        assert!(RawJournalSuperblock::parse(&MAGIC.to_be_bytes()).is_err());
    }
}
