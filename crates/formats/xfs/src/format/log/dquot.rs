//! Quota items.

use engine::Corruption;

use super::raw_item::{Parsed, RawItem, le32, le64};

/// Size of a quota as logged, in bytes (`xfs_disk_dquot`).
pub const DQUOT_SIZE: usize = 104;
/// Size of a quota in its block, in bytes (`xfs_dqblk`).
pub const DQUOT_BLOCK_SIZE: usize = 136;
/// Byte offset of the checksum in a quota.
pub const CRC_OFFSET: usize = 108;
/// Byte offset of the LSN of the last change.
pub(crate) const LSN_OFFSET: usize = 112;
/// `d_magic`: "DQ".
pub const MAGIC: u16 = 0x4451;
/// Byte offset of `d_type` in a quota.
const TYPE_OFFSET: usize = 3;
const STRUCTURE: &str = "log quota item";

/// A changed quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DquotItem<'t> {
    /// User, group or project ID.
    pub id: u32,
    /// First block of its buffer, in units of 512 bytes.
    pub daddr: u64,
    /// Length of the buffer, in file-system blocks (`qlf_len`).
    pub blocks: u32,
    /// Byte offset of the quota in the buffer (`qlf_boffset`).
    pub offset: u32,
    /// The quota, in on-disk byte order.
    pub dquot: &'t [u8],
}

impl<'t> DquotItem<'t> {
    pub(super) fn parse(raw: &RawItem<'t>) -> Parsed<Self> {
        let format = raw.format(STRUCTURE, 24)?;
        let dquot = raw.region(1).and_then(|region| region.get(..DQUOT_SIZE));
        let Some(dquot) = dquot else {
            let len = raw.region(1).map_or(0, <[u8]>::len);
            return Err(Corruption::new(STRUCTURE, "its quota record is truncated")
                .mismatch(DQUOT_SIZE, len));
        };
        let field = |at| le32(format, at).unwrap_or(0);
        let daddr = le64(format, 8).unwrap_or(0);
        Ok(Self { id: field(4), daddr, blocks: field(16), offset: field(20), dquot })
    }

    /// Returns the kind of quota: 1 users, 2 projects, 4 groups.
    pub(crate) const fn kind(&self) -> u8 {
        self.dquot[TYPE_OFFSET] & 7
    }
}

/// Turns off quotas of some kinds. Quota items of these kinds in the log must be ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuotaOff {
    /// Bits of the superblock's `qflags`.
    pub flags: u32,
}

impl QuotaOff {
    pub(super) fn parse(raw: &RawItem<'_>) -> Parsed<Self> {
        let format = raw.format("log end-of-quota item", 8)?;
        Ok(Self { flags: le32(format, 4).unwrap_or(0) })
    }

    /// Returns whether it turns off quotas of the kind of an item.
    pub(crate) const fn ends(&self, item: &DquotItem<'_>) -> bool {
        let bit = match item.kind() {
            1 => 1,
            2 => 8,
            _ => 0x40,
        };
        self.flags & bit != 0
    }
}
