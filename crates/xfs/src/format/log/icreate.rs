//! Items that stand for new inodes: what is in all of them is known, so that it is not logged.

use crate::format::address::{AgBlock, AgNumber};
use crate::format::bytes::be32;

use super::raw_item::{Parsed, RawItem};

/// A run of blocks of new, free inodes. Unlike other items, it is in disk order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icreate {
    /// Its group.
    pub ag: AgNumber,
    /// Its first block.
    pub block: AgBlock,
    /// Inodes.
    pub inodes: u32,
    /// Size of an inode in bytes.
    pub inode_size: u32,
    /// Blocks.
    pub blocks: u32,
    /// Generation of all of them.
    pub generation: u32,
}

impl Icreate {
    pub(super) fn parse(raw: &RawItem<'_>) -> Parsed<Self> {
        let format = raw.format("log item of new inodes", 28)?;
        Ok(Self {
            ag: AgNumber(be32(format, 4)),
            block: AgBlock(be32(format, 8)),
            inodes: be32(format, 12),
            inode_size: be32(format, 16),
            blocks: be32(format, 20),
            generation: be32(format, 24),
        })
    }
}
