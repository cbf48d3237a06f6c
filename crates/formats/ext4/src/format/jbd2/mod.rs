//! Blocks of the journal (jbd2). Big-endian, except for the contents of fast commits.
//!
//! Source: kernel Documentation/filesystems/ext4/journal.rst, checked against journals written by the kernel and
//! debugfs. A transaction is a sequence of descriptor blocks, each followed by the images of the blocks it names, and
//! of revoke blocks. A commit block ends it. A block is trusted only if it has the expected sequence number and, if
//! there are checksums, the expected checksum.
//!
//! The layout of a block depends on the journal's features; see [`JournalLayout`].

mod commit;
mod crc32;
mod descriptor;
mod fast_commit;
mod features;
mod layout;
mod revoke;
mod superblock;

#[cfg(test)]
mod tests;

use std::fmt;

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) use commit::{Commit, Trust};
pub(crate) use crc32::crc32_be;
pub use descriptor::{DescriptorWriter, Tag, tags};
pub use fast_commit::{FastCommitEntry, FastCommitScan, FastCommitTag, Scanned};
pub use features::{JournalCompat, JournalIncompat};
pub use layout::{Checksums, JournalLayout};
pub(crate) use revoke::encode_revokes;
pub use revoke::revokes;
pub(crate) use superblock::BLOCKS_MIN;
pub use superblock::{
    FAST_COMMIT_BLOCKS_DEFAULT, JournalSuperblock, RawJournalSuperblock, SUPERBLOCK_SIZE,
};

/// `h_magic` of every journal block except images.
pub const MAGIC: u32 = 0xc03b_3998;

/// Size of the header of every journal block in bytes: magic number, type and transaction.
pub(crate) const HEADER_SIZE: usize = 12;

/// Sequence number of a transaction. It wraps around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// Returns the number of the next transaction.
    #[must_use]
    pub(crate) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns the number of the previous transaction.
    #[must_use]
    pub(crate) const fn previous(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// Returns whether this transaction comes after `other`. They must be less than 2^31 apart.
    #[must_use]
    pub(crate) const fn is_after(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `h_blocktype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum BlockType {
    /// Contains tags for the images that follow.
    Descriptor = 1,
    /// Ends a transaction.
    Commit = 2,
    /// A superblock without feature fields.
    SuperblockV1 = 3,
    /// A superblock.
    SuperblockV2 = 4,
    /// Contains blocks whose earlier images must not be replayed.
    Revoke = 5,
}

impl BlockType {
    fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }
}

/// Header of every journal block. Field names as in the format document, without `h_`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    blocktype: U32,
    sequence: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_SIZE);

/// Returns the type and transaction of a journal block. Returns `None` for an image or a block that was never written.
#[must_use]
pub fn header(block: &[u8]) -> Option<(BlockType, Tid)> {
    let (raw, _) = RawHeader::read_from_prefix(block).ok()?;
    let kind = BlockType::from_raw(raw.blocktype.get())?;
    (raw.magic == MAGIC).then_some((kind, Tid(raw.sequence.get())))
}

/// Writes the header at the start of `block`.
fn write_header(block: &mut [u8], kind: BlockType, tid: Tid) {
    let raw =
        RawHeader { magic: MAGIC.into(), blocktype: (kind as u32).into(), sequence: tid.0.into() };
    block[..HEADER_SIZE].copy_from_slice(raw.as_bytes());
}

/// Returns whether a block image must be escaped: if it starts with the magic number, it would look like a journal
/// block.
#[must_use]
pub(crate) fn must_escape(image: &[u8]) -> bool {
    image.starts_with(&MAGIC.to_be_bytes())
}

/// First bytes of an escaped block, which replay restores.
pub(crate) const ESCAPED: [u8; 4] = MAGIC.to_be_bytes();
