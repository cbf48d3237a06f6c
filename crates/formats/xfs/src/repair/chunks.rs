//! Finds inode chunks if their tree is damaged.
//!
//! A sound reverse map gives the blocks with inodes. Otherwise two kinds of blocks are taken: those in old records, and
//! those full of inodes in use with their own number and the file system's UUID. In version 4, which has neither, the
//! second kind is that of [`super::named`].

use std::collections::{HashMap, HashSet};

use vfs::check::BitSet;

use super::RepairJob;
use super::group::GroupDevice;
use super::named::{self, Run};
use super::old::Old;
use crate::btree::Tree;
use crate::btree::records::{InoTree, InodeChunk, rmap_owner};
use crate::check::survey::{Chunk, Claim, Survey};
use crate::format::address::{AgBlock, AgIno, AgNumber};
use crate::format::ag::{AGFL_SECTOR, sector_place};
use crate::format::bytes::{be16, be32, be64};
use crate::format::features::Incompat;
use crate::format::geometry::{Geometry, INODES_PER_CHUNK};
use crate::format::inode;

/// Number of inodes per bit of a hole mask.
const INODES_PER_HOLE: u32 = 4;

/// Returns the chunks of a group, in order.
pub(super) fn find(
    job: &RepairJob,
    survey: &Survey,
    device: &GroupDevice<'_>,
    old: &Old<'_>,
) -> Vec<InodeChunk> {
    let is_right = old.ino.is_sound
        && old.ino.records.iter().all(|record| can_be(survey, device, record))
        && has_all(&survey.geometry, device.ag, old)
        && !have_moved(job, survey, device, old, |_| true);
    if is_right { old.ino.records.clone() } else { search(job, survey, device, old) }
}

/// Returns whether chunks are elsewhere than a sound tree says: some chunks accepted by `may_be` contain no inodes, and
/// there are others that the tree does not have.
pub(super) fn have_moved(
    job: &RepairJob,
    survey: &Survey,
    device: &GroupDevice<'_>,
    old: &Old<'_>,
    may_be: impl Fn(&InodeChunk) -> bool,
) -> bool {
    let (geometry, records) = (&survey.geometry, &old.ino.records);
    let mapped = old.rmap();
    // A chunk whose inodes were all overwritten may be in the reverse map.
    let is_mapped = |record: &InodeChunk| {
        let (start, _) = geometry.inode_place(record.start);
        let mut own = mapped.records.iter().filter(|mapped| mapped.owner == rmap_owner::INODES);
        mapped.is_sound && own.any(|run| run.start <= start && u64::from(start.0) < run.end())
    };
    let is_empty = |record: &InodeChunk| {
        let mut inodes = (0..INODES_PER_CHUNK).map(|nth| record.start.0.saturating_add(nth));
        !inodes.any(|ino| is_inode(device, AgIno(ino)))
    };
    let is_strange = |record: &InodeChunk| may_be(record) && is_empty(record) && !is_mapped(record);
    if !old.ino.is_sound || !records.iter().any(is_strange) {
        return false;
    }
    let known: HashSet<AgIno> = records.iter().map(|record| record.start).collect();
    search(job, survey, device, old).iter().any(|chunk| !known.contains(&chunk.start))
}

/// Searches for chunks.
fn search(
    job: &RepairJob,
    survey: &Survey,
    device: &GroupDevice<'_>,
    old: &Old<'_>,
) -> Vec<InodeChunk> {
    let hints = hints(survey, device, old);
    let blocks = blocks_with_inodes(survey, device, old, &hints);
    if survey.geometry.features.crc() {
        return records_in(survey, device, &hints, &blocks);
    }
    let free = free_blocks(device, old);
    let unit = alignment(survey);
    let add_runs = |is_chunk: &dyn Fn(&Run) -> bool| {
        let is_taken = |block: u32| blocks.contains(block.into()) || free.contains(block.into());
        for block in named::blocks(device, unit, is_taken, is_chunk) {
            blocks.insert(block.into());
        }
        records_in(survey, device, &hints, &blocks)
    };
    let (named, root) = (job.named_inodes(survey), survey.sb.raw.rootino.get());
    let found = add_runs(&|run| run.is_named(named, root));
    let Some(agi) = old.header() else { return found };
    if totals(&found).0 >= agi.count.get() {
        return found;
    }
    // Names may be lost. If all runs of inodes are exactly those that the header counts, none belongs to a file.
    let all = add_runs(&|_| true);
    if totals(&all) == (agi.count.get(), agi.freecount.get()) { all } else { found }
}

/// Returns the total numbers of inodes and of free ones.
fn totals(records: &[InodeChunk]) -> (u32, u32) {
    let free = records.iter().map(|record| u32::from(record.freecount)).sum();
    (records.iter().map(InodeChunk::inodes).sum(), free)
}

/// Returns the records of the hints and of other blocks with inodes.
fn records_in(
    survey: &Survey,
    device: &GroupDevice<'_>,
    hints: &HashMap<u32, InodeChunk>,
    blocks: &BitSet,
) -> Vec<InodeChunk> {
    let mut starts: Vec<u32> = hints.keys().copied().collect();
    starts.extend(other_starts(survey, device, hints, blocks));
    starts.sort_unstable();
    starts.dedup();
    let records = starts
        .into_iter()
        .filter_map(|start| record(survey, device, start, hints.get(&start), blocks));
    records.collect()
}

/// Returns whether the tree of chunks has all chunks found elsewhere: a leaf may be valid although it has lost records.
fn has_all(geometry: &Geometry, ag: AgNumber, old: &Old<'_>) -> bool {
    let records = &old.ino.records;
    let starts: HashSet<AgIno> = records.iter().map(|record| record.start).collect();
    let has = |chunk: &InodeChunk| starts.contains(&chunk.start);
    if old.fino.is_sound && !old.fino.records.iter().all(has) {
        return false;
    }
    let rmap = old.rmap();
    if rmap.is_sound {
        let own = rmap.records.iter().filter(|record| record.owner == rmap_owner::INODES);
        let mapped: u64 = own.map(|record| u64::from(record.len)).sum();
        let found: u64 = claims(geometry, ag, records).iter().map(|c| u64::from(c.len)).sum();
        return mapped <= found;
    }
    let count: u32 = records.iter().map(InodeChunk::inodes).sum();
    old.agi.as_ref().is_none_or(|agi| agi.count.get() <= count)
}

/// Returns the claims of the inodes of some chunks.
pub(super) fn claims(geometry: &Geometry, ag: AgNumber, records: &[InodeChunk]) -> Vec<Claim> {
    let log = geometry.inodes_per_block_log();
    let mut blocks: Vec<u32> = Vec::new();
    for record in records {
        let chunk = Chunk::new(record);
        let with = (0..INODES_PER_CHUNK).filter(|nth| chunk.has(*nth));
        blocks.extend(with.map(|nth| record.start.0.saturating_add(nth) >> log));
    }
    blocks.sort_unstable();
    blocks.dedup();
    let runs = blocks.chunk_by(|a, b| a + 1 == *b);
    let claim = |run: &[u32]| Claim {
        ag: ag.0,
        start: run[0],
        len: run.len() as u32,
        owner: rmap_owner::INODES,
        offset: 0,
    };
    runs.map(claim).collect()
}

/// Returns whether a chunk's record is plausible.
fn can_be(survey: &Survey, device: &GroupDevice<'_>, record: &InodeChunk) -> bool {
    let geometry = &survey.geometry;
    let log = geometry.inodes_per_block_log();
    let (headers_end, _) = sector_place(geometry, AGFL_SECTOR);
    let chunk = Chunk::new(record);
    let length = geometry.ag_len(device.ag);
    let is_within = (0..INODES_PER_CHUNK).filter(|nth| chunk.has(*nth)).all(|nth| {
        let block = record.start.0.checked_add(nth).map(|ino| ino >> log);
        block.is_some_and(|block| block > headers_end && block < length)
    });
    let has_holes = record.holemask != 0;
    is_within
        && is_aligned(survey, record.start.0)
        && record.holemask != u16::MAX
        && (!has_holes || geometry.features.incompat(Incompat::SPINODES))
}

/// Returns the alignment of chunks, in blocks.
fn alignment(survey: &Survey) -> u32 {
    survey.sb.raw.inoalignmt.get().max(1)
}

fn is_aligned(survey: &Survey, start: u32) -> bool {
    let log = survey.geometry.inodes_per_block_log();
    let unit = INODES_PER_CHUNK.min(1 << log);
    start.is_multiple_of(unit) && (start >> log).is_multiple_of(alignment(survey))
}

/// Returns plausible records of old trees by their first inode, without overlap.
fn hints(survey: &Survey, device: &GroupDevice<'_>, old: &Old<'_>) -> HashMap<u32, InodeChunk> {
    let mut all: Vec<InodeChunk> =
        old.ino.records.iter().chain(&old.fino.records).copied().collect();
    if !survey.geometry.features.crc() {
        all.extend(records_of_leaves(device));
    }
    // If two records have the same start, the one from the tree of all chunks wins, which comes first.
    all.sort_by_key(|record| record.start.0);
    let mut hints = HashMap::new();
    let mut end = 0;
    for record in all {
        let has_inodes = (0..INODES_PER_CHUNK)
            .any(|nth| is_inode(device, AgIno(record.start.0.saturating_add(nth))));
        if record.start.0 >= end && can_be(survey, device, &record) && has_inodes {
            end = record.start.0 + INODES_PER_CHUNK;
            hints.insert(record.start.0, record);
        }
    }
    hints
}

/// Returns records in blocks that look like leaves of the tree of chunks, even if they are no longer in use. Inodes of
/// version 4 do not contain their number, so there is no other source.
fn records_of_leaves(device: &GroupDevice<'_>) -> Vec<InodeChunk> {
    let (geometry, shape) = (device.geometry, InoTree::SHAPE);
    let area = shape.leaf_area(geometry);
    let mut records = Vec::new();
    for block in 0..geometry.ag_len(device.ag) {
        let Some(bytes) = device.read_block(AgBlock(block)) else { continue };
        let is_leaf = be32(&bytes, 0) == shape.magics[0] && area.level(&bytes) == 0;
        let count = area.count(&bytes);
        if is_leaf && count <= area.max {
            records.extend((0..count).map(|at| InoTree::record(area.entry(&bytes, at))));
        }
    }
    records
}

/// Returns whether an inode has the magic number and its own number; version 4 has no numbers.
fn is_inode(device: &GroupDevice<'_>, ino: AgIno) -> bool {
    let (block, at) = device.geometry.inode_place(ino);
    if block.0 >= device.geometry.ag_len(device.ag) {
        return false;
    }
    device.read_block(block).is_some_and(|bytes| bears_number(device, ino, &bytes[at..]))
}

fn bears_number(device: &GroupDevice<'_>, ino: AgIno, slot: &[u8]) -> bool {
    let geometry = device.geometry;
    match geometry.features.crc() {
        true => signs(device, ino, slot) == SIGNS,
        false => be16(slot, 0) == inode::MAGIC,
    }
}

/// Number of identifying fields of an inode of version 5.
const SIGNS: usize = 4;

/// Returns how many identifying fields of an inode of version 5 are right in a slot.
fn signs(device: &GroupDevice<'_>, ino: AgIno, slot: &[u8]) -> usize {
    let geometry = device.geometry;
    let signs = [
        be16(slot, 0) == inode::MAGIC,
        slot[4] == 3,
        be64(slot, 152) == geometry.ino(device.ag, ino).0,
        slot[160..176] == geometry.meta_uuid,
    ];
    signs.into_iter().filter(|sign| *sign).count()
}

/// Returns whether a slot is probably an inode. One of its identifying fields may be damaged.
fn is_likely(device: &GroupDevice<'_>, ino: AgIno, slot: &[u8]) -> bool {
    match device.geometry.features.crc() {
        true => signs(device, ino, slot) >= SIGNS - 1,
        false => be16(slot, 0) == inode::MAGIC,
    }
}

/// Returns the blocks of a group that a valid tree of free space contains.
fn free_blocks(device: &GroupDevice<'_>, old: &Old<'_>) -> BitSet {
    let free = BitSet::new(device.geometry.ag_len(device.ag).into());
    for run in old.free_runs() {
        free.insert_range(run.start.0.into()..u64::from(run.start.0) + u64::from(run.len), |_| {});
    }
    free
}

/// Returns the blocks of a group that contain inodes. In version 4, only those in old records.
fn blocks_with_inodes(
    survey: &Survey,
    device: &GroupDevice<'_>,
    old: &Old<'_>,
    hints: &HashMap<u32, InodeChunk>,
) -> BitSet {
    let geometry = &survey.geometry;
    let length = geometry.ag_len(device.ag);
    let blocks = BitSet::new(length.into());
    let rmap = old.rmap();
    if rmap.is_sound {
        for record in rmap.records.iter().filter(|record| record.owner == rmap_owner::INODES) {
            blocks.insert_range(record.start.0.into()..record.end(), |_| {});
        }
        return blocks;
    }
    let known: Vec<InodeChunk> = hints.values().copied().collect();
    for claim in claims(geometry, device.ag, &known) {
        blocks.insert_range(claim.start.into()..u64::from(claim.start + claim.len), |_| {});
    }
    if !geometry.features.crc() {
        return blocks;
    }
    let free = free_blocks(device, old);
    let (headers_end, _) = sector_place(geometry, AGFL_SECTOR);
    for block in headers_end + 1..length {
        if free.contains(block.into()) {
            continue;
        }
        let Some(bytes) = device.read_block(AgBlock(block)) else { continue };
        let first = geometry.first_ino(AgBlock(block)).0;
        let slots = bytes.chunks_exact(geometry.inode_size());
        if (first..).zip(slots).any(|(ino, slot)| bears_number(device, AgIno(ino), slot)) {
            blocks.insert(block.into());
        }
    }
    blocks
}

/// Returns the starts of chunks without an old record.
fn other_starts(
    survey: &Survey,
    device: &GroupDevice<'_>,
    hints: &HashMap<u32, InodeChunk>,
    blocks: &BitSet,
) -> Vec<u32> {
    let geometry = &survey.geometry;
    let log = geometry.inodes_per_block_log();
    let mut known: Vec<u32> = hints.keys().copied().collect();
    known.sort_unstable();
    let is_known = |ino: u32| {
        let at = known.partition_point(|start| *start <= ino);
        at.checked_sub(1).is_some_and(|at| ino - known[at] < INODES_PER_CHUNK)
    };
    let mut starts: Vec<u32> = Vec::new();
    for block in 0..geometry.ag_len(device.ag) {
        if !blocks.contains(block.into()) {
            continue;
        }
        let first = geometry.first_ino(AgBlock(block)).0;
        // A block may contain several chunks.
        for ino in (first..first + (1 << log)).step_by(INODES_PER_CHUNK as usize) {
            let is_met = starts.last().is_some_and(|start| ino - start < INODES_PER_CHUNK);
            if is_met || is_known(ino) {
                continue;
            }
            let aligned = block / alignment(survey) * alignment(survey);
            let start = if aligned == block { ino } else { geometry.first_ino(AgBlock(aligned)).0 };
            if starts.last().is_none_or(|last| start >= last + INODES_PER_CHUNK) && !is_known(start)
            {
                starts.push(start);
            }
        }
    }
    starts
}

/// Returns the record of a chunk according to its inodes; `None` if it has none.
fn record(
    survey: &Survey,
    device: &GroupDevice<'_>,
    start: u32,
    hint: Option<&InodeChunk>,
    blocks: &BitSet,
) -> Option<InodeChunk> {
    let geometry = &survey.geometry;
    let log = geometry.inodes_per_block_log();
    let may_have_holes = geometry.features.incompat(Incompat::SPINODES);
    let has = |nth: u32| blocks.contains(((start + nth) >> log).into());
    let mut holemask = 0_u16;
    if may_have_holes {
        for hole in 0..INODES_PER_CHUNK / INODES_PER_HOLE {
            let mut inodes = hole * INODES_PER_HOLE..(hole + 1) * INODES_PER_HOLE;
            if !inodes.any(has) {
                holemask |= 1 << hole;
            }
        }
    }
    let mut free = 0_u64;
    for nth in 0..INODES_PER_CHUNK {
        let is_hole = holemask >> (nth / INODES_PER_HOLE) & 1 == 1;
        let is_free = is_hole || is_free(device, AgIno(start + nth), nth, hint);
        free |= u64::from(is_free) << nth;
    }
    let missing = holemask.count_ones() * INODES_PER_HOLE;
    let inodes = INODES_PER_CHUNK - missing;
    let record = InodeChunk {
        start: AgIno(start),
        holemask,
        count: if may_have_holes { inodes as u8 } else { 0 },
        freecount: (free.count_ones() - missing) as u8,
        free,
    };
    // A valid reverse map may have wrong records.
    let is_seen = hint.is_some()
        || (0..INODES_PER_CHUNK).any(|nth| has(nth) && is_inode(device, AgIno(start + nth)));
    (inodes > 0 && is_seen && can_be(survey, device, &record)).then_some(record)
}

/// Returns whether an inode is free, according to its slot or else the old record.
fn is_free(device: &GroupDevice<'_>, ino: AgIno, nth: u32, hint: Option<&InodeChunk>) -> bool {
    let (block, at) = device.geometry.inode_place(ino);
    let bytes = device.read_block(block);
    let slot = bytes.as_ref().map(|bytes| &bytes[at..]);
    match (slot, hint) {
        (Some(slot), _) if bears_number(device, ino, slot) => be16(slot, 2) == 0,
        (_, Some(hint)) => hint.free >> nth & 1 == 1,
        (Some(slot), None) => !is_likely(device, ino, slot) || be16(slot, 2) == 0,
        (None, None) => false,
    }
}
