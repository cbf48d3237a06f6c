//! Block layout of a journal, which depends on its features.

use super::features::{JournalCompat, JournalIncompat};
use super::{HEADER_SIZE, Tid};
use crate::format::checksum::crc32c;

/// Size of the checksum at the end of descriptor and revoke blocks, in bytes.
pub(super) const TAIL_SIZE: usize = 4;
/// Size of a uuid after a tag, in bytes.
pub(super) const UUID_SIZE: usize = 16;

/// Kind of checksums in a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// No checksums.
    None,
    /// Version 1 (`COMPAT_CHECKSUM`): a commit block may have the CRC-32 of descriptors and images.
    Transaction,
    /// Version 2: CRC-32C of every block; tags contain 16 bits of it.
    V2,
    /// Version 3: CRC-32C of every block.
    V3,
}

/// Layout of the blocks of a journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalLayout {
    /// Block size in bytes.
    pub block_size: usize,
    /// True if block numbers have 64 bits.
    pub wide: bool,
    /// Kind of checksums.
    pub checksums: Checksums,
    /// True if a commit block may be written before the transaction's other blocks.
    pub async_commit: bool,
    /// Seed of the checksums of versions 2 and 3.
    pub seed: u32,
    /// The journal's uuid.
    pub uuid: [u8; 16],
}

impl JournalLayout {
    pub(super) fn new(
        block_size: usize,
        compat: JournalCompat,
        incompat: JournalIncompat,
        uuid: [u8; 16],
    ) -> Self {
        let checksums = if incompat.contains(JournalIncompat::CSUM_V3) {
            Checksums::V3
        } else if incompat.contains(JournalIncompat::CSUM_V2) {
            Checksums::V2
        } else if compat.contains(JournalCompat::CHECKSUM) {
            Checksums::Transaction
        } else {
            Checksums::None
        };
        Self {
            block_size,
            wide: incompat.contains(JournalIncompat::BIT64),
            checksums,
            async_commit: incompat.contains(JournalIncompat::ASYNC_COMMIT),
            seed: crc32c(u32::MAX, &uuid),
            uuid,
        }
    }

    /// Returns whether every block has a checksum.
    #[must_use]
    pub(crate) fn has_block_checksums(&self) -> bool {
        matches!(self.checksums, Checksums::V2 | Checksums::V3)
    }

    /// Returns the size of a tag without the uuid that may follow it, in bytes.
    ///
    /// With version 2 a tag has two more bytes than in the format document. They were introduced with the checksum and
    /// are never used.
    #[must_use]
    pub(crate) fn tag_size(&self) -> usize {
        match (self.checksums, self.wide) {
            (Checksums::V3, _) => 16,
            (Checksums::V2, true) => 14,
            (Checksums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Returns the end of the area for tags or revoke records in a block.
    pub(super) fn records_end(&self) -> usize {
        self.block_size - if self.has_block_checksums() { TAIL_SIZE } else { 0 }
    }

    /// Returns the maximum number of tags of a descriptor block. Only the first tag has a uuid.
    #[must_use]
    pub(crate) fn tags_max(&self) -> usize {
        (self.records_end() - HEADER_SIZE - UUID_SIZE) / self.tag_size()
    }

    /// Returns the size of a revoke record in bytes.
    #[must_use]
    pub(crate) fn revoke_size(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Returns the checksum of a stored, escaped image.
    #[must_use]
    pub(crate) fn image_checksum(&self, tid: Tid, stored: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &tid.0.to_be_bytes()), stored)
    }

    /// Returns the checksum of a whole journal block with the four bytes at `at` as 0.
    pub(super) fn block_checksum(&self, block: &[u8], at: usize) -> u32 {
        let crc = crc32c(crc32c(self.seed, &block[..at]), &[0; 4]);
        crc32c(crc, &block[at + 4..])
    }

    /// Returns whether the checksum at the end of a descriptor or revoke block is valid or not used.
    #[must_use]
    pub(crate) fn is_intact(&self, block: &[u8]) -> bool {
        if !self.has_block_checksums() {
            return true;
        }
        let at = self.records_end();
        let computed = self.block_checksum(block, at);
        block[at..at + TAIL_SIZE] == computed.to_be_bytes()
    }

    /// Writes the checksum at the end of a descriptor or revoke block, if checksums are used.
    pub(super) fn seal(&self, block: &mut [u8]) {
        if self.has_block_checksums() {
            let at = self.records_end();
            let computed = self.block_checksum(block, at);
            block[at..at + TAIL_SIZE].copy_from_slice(&computed.to_be_bytes());
        }
    }
}
