//! What the features of a journal mean for its blocks.

use super::features::{JournalCompat, JournalIncompat};
use super::{HEADER_SIZE, Tid};
use crate::format::checksum::crc32c;

/// Bytes of the checksum at the end of descriptor and revoke blocks.
pub(super) const TAIL_SIZE: usize = 4;
/// Bytes of a uuid behind a tag.
pub(super) const UUID_SIZE: usize = 16;

/// What is covered by checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Nothing.
    None,
    /// Version 1 (`COMPAT_CHECKSUM`): a commit block may have the CRC-32 of descriptors and images.
    Transaction,
    /// Version 2: every block by CRC-32C, of which tags keep 16 bits.
    V2,
    /// Version 3: every block by CRC-32C.
    V3,
}

/// How the blocks of one journal are laid out.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Block size in bytes.
    pub block_size: usize,
    /// Whether block numbers take 64 bits.
    pub wide: bool,
    /// What is covered by checksums.
    pub checksums: Checksums,
    /// Whether a commit block may reach the device before the transaction's other blocks.
    pub async_commit: bool,
    /// Seed of the checksums of versions 2 and 3.
    pub seed: u32,
    /// The journal's uuid.
    pub uuid: [u8; 16],
}

impl Layout {
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

    /// Whether every block has a checksum.
    #[must_use]
    pub fn has_block_checksums(&self) -> bool {
        matches!(self.checksums, Checksums::V2 | Checksums::V3)
    }

    /// Bytes of a tag without the uuid that may follow it.
    ///
    /// Version 2 has two bytes more than the format document says: they came in with the checksum
    /// and are never used.
    #[must_use]
    pub fn tag_size(&self) -> usize {
        match (self.checksums, self.wide) {
            (Checksums::V3, _) => 16,
            (Checksums::V2, true) => 14,
            (Checksums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Where the tags or revoke records of a block must end.
    pub(super) fn records_end(&self) -> usize {
        self.block_size - if self.has_block_checksums() { TAIL_SIZE } else { 0 }
    }

    /// The most tags of a descriptor block, of which only the first has a uuid.
    #[must_use]
    pub fn tags_max(&self) -> usize {
        (self.records_end() - HEADER_SIZE - UUID_SIZE) / self.tag_size()
    }

    /// Bytes of a revoke record.
    #[must_use]
    pub fn revoke_size(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Checksum of the image of a block as it is stored, escaped.
    #[must_use]
    pub fn image_checksum(&self, tid: Tid, stored: &[u8]) -> u32 {
        crc32c(crc32c(self.seed, &tid.0.to_be_bytes()), stored)
    }

    /// Checksum of a whole block of the journal as if the four bytes at `at` were 0.
    pub(super) fn block_checksum(&self, block: &[u8], at: usize) -> u32 {
        let crc = crc32c(crc32c(self.seed, &block[..at]), &[0; 4]);
        crc32c(crc, &block[at + 4..])
    }

    /// Whether the checksum at the end of a descriptor or revoke block is right, or there is none.
    #[must_use]
    pub fn is_intact(&self, block: &[u8]) -> bool {
        if !self.has_block_checksums() {
            return true;
        }
        let at = self.records_end();
        let computed = self.block_checksum(block, at);
        block[at..at + TAIL_SIZE] == computed.to_be_bytes()
    }

    /// Writes the checksum at the end of a descriptor or revoke block, if it has one.
    pub(super) fn seal(&self, block: &mut [u8]) {
        if self.has_block_checksums() {
            let at = self.records_end();
            let computed = self.block_checksum(block, at);
            block[at..at + TAIL_SIZE].copy_from_slice(&computed.to_be_bytes());
        }
    }
}
