//! Quota items.

use transaction::Corruption;

use super::raw_item::{Parsed, RawItem, le32, le64};

/// Bytes of a quota as it is logged (`xfs_disk_dquot`).
pub const DQUOT_SIZE: usize = 104;
/// Bytes of a quota in its block (`xfs_dqblk`).
pub const DQUOT_BLOCK_SIZE: usize = 136;
/// Byte of the checksum in it.
pub const CRC_OFFSET: usize = 108;
/// Byte of the place in the log at which it was last changed.
pub const LSN_OFFSET: usize = 112;
/// `d_magic`: "DQ".
pub const MAGIC: u16 = 0x4451;
/// Byte of `d_type` in a quota.
const TYPE_OFFSET: usize = 3;
const STRUCTURE: &str = "log quota item";

/// A quota that was changed.
#[derive(Clone, Copy, Debug)]
pub struct DquotItem<'t> {
    /// User, group or project.
    pub id: u32,
    /// First block of its buffer, of 512 bytes.
    pub daddr: u64,
    /// Length of the buffer, in blocks of the file system (`qlf_len`).
    pub blocks: u32,
    /// Byte of the quota in the buffer (`qlf_boffset`).
    pub offset: u32,
    /// The quota, in disk order.
    pub dquot: &'t [u8],
}

impl<'t> DquotItem<'t> {
    pub(super) fn parse(raw: &RawItem<'t>) -> Parsed<Self> {
        let format = raw.format(STRUCTURE, 24)?;
        let dquot = raw.region(1).and_then(|region| region.get(..DQUOT_SIZE));
        let Some(dquot) = dquot else {
            let len = raw.region(1).map_or(0, <[u8]>::len);
            return Err(
                Corruption::new(STRUCTURE, "its quota is cut short").mismatch(DQUOT_SIZE, len)
            );
        };
        let field = |at| le32(format, at).unwrap_or(0);
        let daddr = le64(format, 8).unwrap_or(0);
        Ok(Self { id: field(4), daddr, blocks: field(16), offset: field(20), dquot })
    }

    /// The kind of quota: 1 users, 2 projects, 4 groups.
    pub const fn kind(&self) -> u8 {
        self.dquot[TYPE_OFFSET] & 7
    }
}

/// The end of quotas of some kinds. What is logged of them around it does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaOff {
    /// Bits of the superblock's `qflags`.
    pub flags: u32,
}

impl QuotaOff {
    pub(super) fn parse(raw: &RawItem<'_>) -> Parsed<Self> {
        let format = raw.format("log end-of-quota item", 8)?;
        Ok(Self { flags: le32(format, 4).unwrap_or(0) })
    }

    /// Whether it ends quotas of the kind of an item.
    pub const fn ends(&self, item: &DquotItem<'_>) -> bool {
        let bit = match item.kind() {
            1 => 1,
            2 => 8,
            _ => 0x40,
        };
        self.flags & bit != 0
    }
}
