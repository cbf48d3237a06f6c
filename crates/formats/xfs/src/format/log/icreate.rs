//! Items of new inodes (ICREATE), whose known contents are not logged.

use crate::format::address::{AgBlock, AgNumber};
use crate::format::bytes::{be32, put32};

use super::raw_item::{ItemType, Parsed, RawItem};

/// A run of blocks of new, free inodes. Unlike other items, it is in on-disk byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Icreate {
    /// Its group.
    pub ag: AgNumber,
    /// Its first block.
    pub block: AgBlock,
    /// Number of inodes.
    pub inodes: u32,
    /// Size of an inode in bytes.
    pub inode_size: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Generation of all inodes.
    pub generation: u32,
}

/// Size of an item in bytes.
pub(crate) const SIZE: usize = 28;

impl Icreate {
    /// Returns its form in the log: an item of one region.
    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..2].copy_from_slice(&(ItemType::Icreate as u16).to_le_bytes());
        bytes[2..4].copy_from_slice(&1_u16.to_le_bytes());
        let Self { ag, block, inodes, inode_size, blocks, generation } = *self;
        let words = [ag.0, block.0, inodes, inode_size, blocks, generation];
        for (at, word) in words.into_iter().enumerate() {
            put32(&mut bytes, 4 + 4 * at, word);
        }
        bytes
    }

    pub(super) fn parse(raw: &RawItem<'_>) -> Parsed<Self> {
        let format = raw.format("log item of new inodes", SIZE)?;
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
