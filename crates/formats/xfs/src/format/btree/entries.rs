//! Checks the contents of records and keys of each tree: their order and locations. Readers check the records that they
//! use; here all changed ones of a block are checked before it is written.

use std::ops::Range;

use engine::{Changed, Corruption};

use super::{Area, TreeShape};
use crate::format::address::{AgBlock, Block, FsBlock};
use crate::format::bytes::{be16, be32, be64};
use crate::format::extent::{Extent, offset_of};
use crate::format::features::Incompat;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};

/// The kind of a tree's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Free runs, by block.
    FreeByBlock,
    /// Free runs, by length and block.
    FreeByLength,
    /// Inode chunks.
    Chunks,
    /// Owners of blocks.
    ReverseMaps,
    /// Reference counts.
    References,
    /// Extents of a fork.
    Extents,
}

/// Flag in the first block of a reference count staged for copy on write.
const COW: u32 = 1 << 31;
/// Flag for unwritten blocks in the offset of a reverse-map record, not part of the key.
const UNWRITTEN: u64 = 1 << 61;
/// Number of inodes per bit of a chunk's hole mask.
const INODES_PER_HOLE: u32 = 4;

/// Sort key of entries.
type Key = (u64, u64, u64);

impl TreeShape {
    /// Checks the changed entries of a block: validity and order, also relative to their neighbours, and pointers of
    /// nodes.
    pub(super) fn verify_entries(
        &self,
        geometry: &Geometry,
        block: Block,
        area: &Area,
        changed: Changed,
        data: &[u8],
    ) -> Result<(), Corruption> {
        let is_leaf = area.pointer_size == 0;
        let count = area.count(data);
        if count == 0 && !is_leaf {
            return Err(Corruption::new(self.name, "numrecs").mismatch("1 or more in a node", 0));
        }
        let ag_blocks = self.group_blocks(geometry, block);
        for at in changed.rows(area.entries, area.entry_size, count).flatten().filter(|_| is_leaf) {
            self.verify_record(geometry, ag_blocks, area.entry(data, at)).map_err(|found| {
                Corruption::new(self.name, format!("invalid record {at}"))
                    .mismatch("one inside its group", found)
            })?;
        }
        // If the level or the number of entries changed, all entries are checked.
        let (from, to) = (area.level_range().start, area.count_range().end);
        let changed = if changed.touches(from..to) { Changed::whole(data.len()) } else { changed };
        for rows in changed.rows(area.entries, area.entry_size, count) {
            self.verify_order(area, data, rows.start.saturating_sub(1)..(rows.end + 1).min(count))?;
        }
        if is_leaf {
            return Ok(());
        }
        let pointers = changed.rows(area.pointers, area.pointer_size, count);
        for at in pointers.flatten() {
            let pointer = area.pointer(data, at);
            // The first block of a group contains its headers.
            let is_header = self.long && geometry.split(FsBlock(pointer)).1 == AgBlock(0);
            if is_header || !self.is_address(geometry, block, pointer) {
                let fault = Corruption::new(self.name, format!("pointer {at}"));
                return Err(fault.mismatch("a block of the group", pointer));
            }
        }
        Ok(())
    }

    /// Checks the entries of a root in an inode that may be a leaf: validity of records, and order.
    ///
    /// # Errors
    /// The first problem found.
    pub(crate) fn verify_root_entries(
        &self,
        geometry: &Geometry,
        area: &Area,
        fork: &[u8],
    ) -> Result<(), Corruption> {
        let count = area.count(fork);
        let group_blocks = self.group_blocks(geometry, Block(0));
        for at in (0..count).filter(|_| area.pointer_size == 0) {
            self.verify_record(geometry, group_blocks, area.entry(fork, at)).map_err(|found| {
                Corruption::new(self.name, format!("invalid record {at}"))
                    .mismatch("one inside its group", found)
            })?;
        }
        self.verify_order(area, fork, 0..count)
    }

    /// Returns the number of blocks of the group that the records of a block refer to. The tree of a realtime group does
    /// not contain the number of its group, so the result is then the size of all groups but the last.
    fn group_blocks(&self, geometry: &Geometry, block: Block) -> u32 {
        match geometry.realtime {
            Some(realtime) if self.has_leaf_roots => realtime.group_blocks(),
            _ => geometry.ag_len(geometry.locate(block).0),
        }
    }

    fn verify_order(&self, area: &Area, data: &[u8], rows: Range<usize>) -> Result<(), Corruption> {
        let is_leaf = area.pointer_size == 0;
        let mut least = Key::default();
        for at in rows {
            let entry = area.entry(data, at);
            let key = self.key(entry, is_leaf);
            if key < least {
                let fault = Corruption::new(self.name, format!("order of entries at {at}"));
                let expected = format_args!("{least:?} or more").to_string();
                return Err(fault.mismatch(expected, format_args!("{key:?}")));
            }
            least = if is_leaf { self.least_after(entry, key) } else { key };
        }
        Ok(())
    }

    /// Returns the sort key of an entry; for overlapping records, their first block.
    fn key(&self, entry: &[u8], is_leaf: bool) -> Key {
        let first = || u64::from(be32(entry, 0));
        match self.entries {
            RecordKind::FreeByBlock | RecordKind::Chunks | RecordKind::References => {
                (first(), 0, 0)
            }
            RecordKind::FreeByLength => (be32(entry, 4).into(), first(), 0),
            RecordKind::ReverseMaps => {
                let (owner, offset) = if is_leaf { (8, 16) } else { (4, 12) };
                (first(), be64(entry, owner), be64(entry, offset) & !UNWRITTEN)
            }
            RecordKind::Extents if is_leaf => (offset_of(entry).0, 0, 0),
            RecordKind::Extents => (be64(entry, 0), 0, 0),
        }
    }

    /// Returns the lowest key that the next record can have.
    fn least_after(&self, record: &[u8], key: Key) -> Key {
        let past = |len: u64| (key.0.saturating_add(len), 0, 0);
        match self.entries {
            RecordKind::FreeByBlock | RecordKind::References => past(be32(record, 4).into()),
            RecordKind::Chunks => past(INODES_PER_CHUNK.into()),
            RecordKind::Extents => past(Extent::parse(record).len),
            // Shared blocks have several owners, whose records may start at one block.
            RecordKind::ReverseMaps => key,
            RecordKind::FreeByLength => (key.0, key.1 + 1, 0),
        }
    }

    /// Checks that a record is within its group. Returns its description if not.
    fn verify_record(
        &self,
        geometry: &Geometry,
        ag_blocks: u32,
        record: &[u8],
    ) -> Result<(), String> {
        let (start, len) = (be32(record, 0), be32(record, 4));
        let is_run =
            |start: u32| len > 0 && u64::from(start) + u64::from(len) <= u64::from(ag_blocks);
        let is_sound = match self.entries {
            RecordKind::FreeByBlock | RecordKind::FreeByLength => is_run(start),
            RecordKind::ReverseMaps => is_run(start) && be64(record, 8) != 0,
            RecordKind::References => is_run(start & !COW) && be32(record, 8) > 0,
            RecordKind::Chunks => return verify_chunk(geometry, ag_blocks, record),
            RecordKind::Extents => {
                let extent = Extent::parse(record);
                // The block does not say whether its owner is a realtime file.
                let is_on_realtime =
                    || geometry.realtime.is_some_and(|it| extent.check_realtime(&it).is_ok());
                let is_sound = extent.check(geometry).is_ok() || is_on_realtime();
                return if is_sound { Ok(()) } else { Err(format!("{extent:?}")) };
            }
        };
        if is_sound { Ok(()) } else { Err(format!("{len} blocks from {start:#x}")) }
    }
}

/// Checks that a chunk starts within the group, and that its counts agree with its masks.
fn verify_chunk(geometry: &Geometry, ag_blocks: u32, record: &[u8]) -> Result<(), String> {
    let (start, free) = (be32(record, 0), be64(record, 8));
    let (holes, count, free_count) = (be16(record, 4), record[6], record[7]);
    let missing = holes.count_ones() * INODES_PER_HOLE;
    let is_within = AgBlock(start >> geometry.inodes_per_block_log()).0 < ag_blocks;
    let inodes = INODES_PER_CHUNK - missing;
    // Without sparse inodes, this byte is part of the number of free inodes.
    let expected = if geometry.features.incompat(Incompat::SPINODES) { inodes } else { 0 };
    let counts_agree =
        free.count_ones() == u32::from(free_count) + missing && u32::from(count) == expected;
    if is_within && counts_agree {
        return Ok(());
    }
    Err(format!("inode {start}, holes {holes:#x}, {count} inodes, {free_count} free of {free:#x}"))
}
