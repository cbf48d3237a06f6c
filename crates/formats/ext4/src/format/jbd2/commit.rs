//! Commit blocks, which end a transaction.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::layout::{Checksums, JournalLayout};
use super::{BlockType, Tid, write_header};

/// `h_chksum_type` of the CRC-32 of version 1.
const CHECKSUM_TYPE_CRC32: u8 = 1;
/// `h_chksum_size` of a CRC-32.
const CHECKSUM_SIZE_CRC32: u8 = 4;

/// A commit block. Field names as in the format document, without `h_`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawCommit {
    header: [U32; 3],
    chksum_type: u8,
    chksum_size: u8,
    padding: [u8; 2],
    chksum: [U32; 8],
    commit_sec: U64,
    commit_nsec: U32,
}

const _: () = assert!(size_of::<RawCommit>() == 60);
const CHECKSUM_OFFSET: usize = std::mem::offset_of!(RawCommit, chksum);
const _: () = assert!(CHECKSUM_OFFSET == 0x10);
const _: () = assert!(std::mem::offset_of!(RawCommit, commit_sec) == 0x30);

/// Result of verifying a commit block's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The checksum is right, or the journal has none.
    Sound,
    /// The checksum is wrong.
    Wrong {
        /// Checksum computed from the block or from the transaction's blocks.
        computed: u32,
        /// Checksum stored in the block.
        stored: u32,
    },
}

/// Contents of a commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Commit time in seconds since the epoch.
    pub sec: u64,
    /// Nanoseconds of that second.
    pub nsec: u32,
}

impl Commit {
    /// Parses a commit block. `transaction_crc` is the register of [`crc32_be`](super::crc32_be) over all descriptor
    /// blocks and images of the transaction, required for journals with [`Checksums::Transaction`].
    #[must_use]
    pub(crate) fn parse(
        block: &[u8],
        layout: &JournalLayout,
        transaction_crc: u32,
    ) -> (Self, Trust) {
        let raw = RawCommit::read_from_prefix(block)
            .map_or_else(|_| RawCommit::new_zeroed(), |(raw, _)| raw);
        let commit = Self { sec: raw.commit_sec.get(), nsec: raw.commit_nsec.get() };
        let stored = raw.chksum[0].get();
        let computed = match layout.checksums {
            Checksums::None => return (commit, Trust::Sound),
            Checksums::Transaction => {
                let is_unused = raw.chksum_type == 0 && raw.chksum_size == 0 && stored == 0;
                let is_crc32 = raw.chksum_type == CHECKSUM_TYPE_CRC32
                    && raw.chksum_size == CHECKSUM_SIZE_CRC32;
                if is_unused || (is_crc32 && stored == transaction_crc) {
                    return (commit, Trust::Sound);
                }
                transaction_crc
            }
            Checksums::V2 | Checksums::V3 => {
                let computed = layout.block_checksum(block, CHECKSUM_OFFSET);
                if stored == computed || stored == head_checksum(block, layout) {
                    return (commit, Trust::Sound);
                }
                computed
            }
        };
        (commit, Trust::Wrong { computed, stored })
    }

    /// Writes a commit block to `block`, which must be zero. `transaction_crc` as in `Commit::parse`.
    pub(crate) fn encode(
        &self,
        block: &mut [u8],
        layout: &JournalLayout,
        tid: Tid,
        transaction_crc: u32,
    ) {
        let mut raw = RawCommit::new_zeroed();
        raw.commit_sec = self.sec.into();
        raw.commit_nsec = self.nsec.into();
        if layout.checksums == Checksums::Transaction {
            raw.chksum_type = CHECKSUM_TYPE_CRC32;
            raw.chksum_size = CHECKSUM_SIZE_CRC32;
            raw.chksum[0] = transaction_crc.into();
        }
        block[..size_of::<RawCommit>()].copy_from_slice(raw.as_bytes());
        write_header(block, BlockType::Commit, tid);
        if layout.has_block_checksums() {
            let computed = layout.block_checksum(block, CHECKSUM_OFFSET);
            block[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 4].copy_from_slice(&computed.to_be_bytes());
        }
    }
}

/// Returns the checksum of a commit block with zeros after its fields, as when it was written. A power failure may
/// leave sectors of an older block there. The transaction is complete nevertheless, because the fields are in the first
/// sector.
fn head_checksum(block: &[u8], layout: &JournalLayout) -> u32 {
    let fields = size_of::<RawCommit>().min(block.len());
    let mut whole = vec![0; block.len()];
    whole[..fields].copy_from_slice(&block[..fields]);
    layout.block_checksum(&whole, CHECKSUM_OFFSET)
}
