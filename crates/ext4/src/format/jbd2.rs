//! The journal's superblock: the first block of the journal. Big-endian, as all of the journal.

use vfs::{Corruption, Result};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `h_magic` of every block of the journal that is not a copy of another one.
pub const MAGIC: u32 = 0xc03b_3998;
/// `h_blocktype` of a version-1 superblock, which has no feature fields.
pub const SUPERBLOCK_V1: u32 = 3;
/// `h_blocktype` of a version-2 superblock.
pub const SUPERBLOCK_V2: u32 = 4;
/// Size of the superblock in bytes.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// Fewest blocks a journal may have.
pub const BLOCKS_MIN: u32 = 1024;

/// The journal superblock as it is on disk. Fields as in the format document, without `s_`.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are the format document's")]
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
    /// The superblock of an empty journal of `blocks` blocks inside the file system `uuid`. It has
    /// no features: the first kernel that mounts it adds those it uses.
    #[must_use]
    pub fn empty(block_size: u32, blocks: u32, uuid: [u8; 16]) -> Self {
        let mut raw = Self::new_zeroed();
        raw.h_magic = MAGIC.into();
        raw.h_blocktype = SUPERBLOCK_V2.into();
        raw.blocksize = block_size.into();
        raw.maxlen = blocks.into();
        raw.first = 1.into();
        raw.sequence = 1.into();
        raw.uuid = uuid;
        raw.nr_users = 1.into();
        raw
    }

    /// Takes the superblock from the start of the journal's first block.
    ///
    /// # Errors
    /// `Corrupt` if it is none.
    pub fn parse(block: &[u8]) -> Result<Self> {
        let damage = |problem| Corruption::new("journal superblock", problem);
        let Ok((raw, _)) = Self::read_from_prefix(block) else {
            return Err(damage("cut short").into());
        };
        if raw.h_magic != MAGIC {
            let found = format!("{:#010x}", raw.h_magic.get());
            return Err(damage("magic number").mismatch(format!("{MAGIC:#010x}"), found).into());
        }
        let block_type = raw.h_blocktype.get();
        if block_type != SUPERBLOCK_V1 && block_type != SUPERBLOCK_V2 {
            return Err(damage("block type").mismatch("3 or 4", block_type).into());
        }
        Ok(raw)
    }

    /// Whether the journal holds changes that have not reached their places.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.start != 0
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
