//! The hash index: entries sorted by hash, in leaves, in the nodes above them, and at the end of a block in block form.
//!
//! An entry of a leaf contains the address of the name with that hash. Address 0 makes it *stale*: it keeps its
//! position in the order, and is reused or removed when room is needed. An entry of a node contains the highest hash of
//! a child, and the child. Both have 8 bytes, the hash first, and the counts are at the same offsets, so most functions
//! serve both.

use engine::Corruption;
use smallvec::SmallVec;

use super::{DirLayout, header, magic};
use crate::format::bytes::{be16, be32, put16, put32};
use crate::format::edit::Edit;

/// Size of an entry in bytes.
pub(crate) const ENTRY_SIZE: usize = 8;
/// Size of the tail of block form in bytes: count and stale count (`xfs_dir2_block_tail`).
pub(crate) const TAIL_SIZE: usize = 8;
/// Number of entries that can be merged into a leaf without allocating memory.
const MERGED_USUALLY: usize = 36;
/// Maximum number of node levels above the leaves (`XFS_DA_NODE_MAXDEPTH` includes the leaves).
pub(crate) const LEVELS_MAX: u16 = 4;
const NAME: &str = "directory leaf";

/// The type of a block of the hash index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafKind {
    /// The only leaf, with the bests array of all data blocks at its end.
    Single,
    /// A leaf of a directory with a separate free-space index.
    Many,
    /// A node.
    Node,
}

/// An entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeafEntry {
    /// Hash of the name; in a node, the highest hash below.
    pub hash: u32,
    /// Address of the entry, 0 if it is stale; in a node, the child's logical block.
    pub address: u32,
}

/// The location of a table of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Its byte offset.
    pub start: usize,
    /// Number of entries, including stale ones.
    pub count: usize,
    /// Range of its hashes according to the node above, if known. Used only to speed up searches.
    pub between: Option<(u32, u32)>,
}

impl Table {
    /// Returns the byte offset of an entry.
    pub(crate) const fn at(&self, index: usize) -> usize {
        self.start + index * ENTRY_SIZE
    }

    /// Returns the end of the table.
    pub(crate) const fn end(&self) -> usize {
        self.at(self.count)
    }

    /// Returns an entry.
    pub(crate) fn entry(&self, block: &[u8], index: usize) -> LeafEntry {
        let at = self.at(index);
        LeafEntry { hash: be32(block, at), address: be32(block, at + 4) }
    }

    /// Returns the last hash; 0 if there is none.
    pub(crate) fn last_hash(&self, block: &[u8]) -> u32 {
        if self.count == 0 { 0 } else { self.entry(block, self.count - 1).hash }
    }

    /// Returns the first entry whose hash is at least `hash`; the count if there is none.
    pub(crate) fn lower_bound(&self, block: &[u8], hash: u32) -> usize {
        let rows = &block[self.start..self.end()];
        let (rows, _) = rows.as_chunks::<ENTRY_SIZE>();
        let (low, high) = bracket(rows, hash, self.between);
        low + rows[low..high].partition_point(|row| hash_of(row) < hash)
    }

    /// Returns the entries with a hash, except stale ones, each with its index.
    pub(crate) fn equal<'b>(
        self,
        block: &'b [u8],
        hash: u32,
    ) -> impl Iterator<Item = (usize, LeafEntry)> + 'b {
        let first = self.lower_bound(block, hash);
        (first..self.count)
            .map(move |index| (index, self.entry(block, index)))
            .take_while(move |(_, entry)| entry.hash == hash)
            .filter(|(_, entry)| entry.address != 0)
    }
}

fn hash_of(row: &[u8; ENTRY_SIZE]) -> u32 {
    u32::from_be_bytes([row[0], row[1], row[2], row[3]])
}

/// Smaller tables are searched by bisection from the start.
const BRACKET_ROWS_MIN: usize = 32;
/// Number of entries per cache line.
const BRACKET_STEP: usize = 8;

/// Returns bounds of the position of a hash. Hashes are evenly distributed, so the position is estimated from the
/// lowest and the highest hash, and bounds are searched outwards in steps that double. In uncached memory each step is
/// a cache miss, and this takes two or three where bisection takes six.
fn bracket(rows: &[[u8; ENTRY_SIZE]], hash: u32, between: Option<(u32, u32)>) -> (usize, usize) {
    let ([first, .., last], true) = (rows, rows.len() >= BRACKET_ROWS_MIN) else {
        return (0, rows.len());
    };
    let (low, high) = between.unwrap_or_else(|| (hash_of(first), hash_of(last)));
    let above = u64::from(hash.saturating_sub(low));
    let guess = above * rows.len() as u64 / u64::from(high.saturating_sub(low)).max(1);
    let guess = guess.min(rows.len() as u64 - 1) as usize;
    let mut step = BRACKET_STEP;
    if hash_of(&rows[guess]) < hash {
        let mut low = guess + 1;
        while let Some(row) = rows.get(low + step) {
            if hash_of(row) >= hash {
                return (low, low + step);
            }
            low += step + 1;
            step *= 2;
        }
        return (low, rows.len());
    }
    let mut high = guess;
    while high > step {
        if hash_of(&rows[high - step]) < hash {
            return (high - step + 1, high);
        }
        high -= step;
        step *= 2;
    }
    (0, high)
}

/// Returns the entries that are not stale.
pub(crate) fn live<'b>(
    block: &'b [u8],
    table: &Table,
) -> impl Iterator<Item = LeafEntry> + Clone + 'b {
    let table = *table;
    (0..table.count).map(move |i| table.entry(block, i)).filter(|entry| entry.address != 0)
}

/// Returns the hash index of block form. The block must have been verified.
pub(crate) fn block_table(layout: &DirLayout, block: &[u8]) -> Table {
    let end = layout.size() - TAIL_SIZE;
    let most = (end - layout.header()) / ENTRY_SIZE;
    let count = (tail(layout, block).0 as usize).min(most);
    Table { start: end - count * ENTRY_SIZE, count, between: None }
}

/// Returns the number of stale entries in the hash index of block form.
pub(crate) fn block_stale(layout: &DirLayout, block: &[u8]) -> usize {
    tail(layout, block).1 as usize
}

/// Writes the tail of block form.
pub(crate) fn set_block_tail(
    layout: &DirLayout,
    block: &mut impl Edit,
    count: usize,
    stale: usize,
) {
    let at = layout.size() - TAIL_SIZE;
    let bytes = block.edit(at..at + TAIL_SIZE);
    put32(bytes, 0, count as u32);
    put32(bytes, 4, stale as u32);
}

fn count_at(layout: &DirLayout) -> usize {
    if layout.crc { header::DA_END } else { header::DA_END_V4 }
}

/// Returns the type of a block of the hash index; `None` for another magic number.
pub(crate) fn kind(layout: &DirLayout, block: &[u8]) -> Option<LeafKind> {
    let found = be16(block, header::DA_MAGIC);
    let version = layout.version();
    [
        (magic::LEAF1, LeafKind::Single),
        (magic::LEAFN, LeafKind::Many),
        (magic::NODE, LeafKind::Node),
    ]
    .into_iter()
    .find(|(pair, _)| pair[version] == found)
    .map(|(_, kind)| kind)
}

/// Changes the type of a leaf.
pub(crate) fn set_kind(layout: &DirLayout, block: &mut impl Edit, kind: LeafKind) {
    let pair = match kind {
        LeafKind::Single => magic::LEAF1,
        LeafKind::Many => magic::LEAFN,
        LeafKind::Node => magic::NODE,
    };
    block.set16(header::DA_MAGIC, pair[layout.version()]);
}

/// Returns the entries of a leaf or node. The block must have been verified.
pub(crate) fn table(layout: &DirLayout, block: &[u8]) -> Table {
    let count = usize::from(be16(block, count_at(layout))).min(layout.leaf_capacity());
    Table { start: layout.header(), count, between: None }
}

/// Returns the number of stale entries of a leaf.
pub(crate) fn stale(layout: &DirLayout, block: &[u8]) -> usize {
    be16(block, count_at(layout) + 2).into()
}

/// Returns the level of a node above the leaves.
pub(crate) fn level(layout: &DirLayout, block: &[u8]) -> u16 {
    be16(block, count_at(layout) + 2)
}

/// Sets the number of entries, and of stale ones (in a node: the level).
pub(crate) fn set_counts(
    layout: &DirLayout,
    block: &mut impl Edit,
    count: usize,
    stale_or_level: usize,
) {
    let at = count_at(layout);
    let bytes = block.edit(at..at + 4);
    put16(bytes, 0, count as u16);
    put16(bytes, 2, stale_or_level as u16);
}

/// Returns the logical blocks of the previous and next neighbour on the same level; 0 for none.
pub(crate) fn siblings(block: &[u8]) -> (u32, u32) {
    (be32(block, header::DA_BACK), be32(block, header::DA_FORW))
}

/// Sets the previous neighbour.
pub(crate) fn set_back(block: &mut impl Edit, at: u32) {
    block.set32(header::DA_BACK, at);
}

/// Sets the next neighbour.
pub(crate) fn set_forw(block: &mut impl Edit, at: u32) {
    block.set32(header::DA_FORW, at);
}

fn put(bytes: &mut [u8], entry: LeafEntry) {
    put32(bytes, 0, entry.hash);
    put32(bytes, 4, entry.address);
}

/// Replaces an entry.
pub(crate) fn set_entry(block: &mut impl Edit, table: &Table, index: usize, entry: LeafEntry) {
    let at = table.at(index);
    put(block.edit(at..at + ENTRY_SIZE), entry);
}

/// Inserts an entry at `index` into a table that grows at its end. The caller updates the counts.
pub(crate) fn insert_at(block: &mut impl Edit, table: &Table, index: usize, entry: LeafEntry) {
    block.shift(table.at(index)..table.end(), table.at(index + 1));
    set_entry(block, table, index, entry);
}

/// Inserts an entry before `index` into a table that grows at its start (block form).
pub(crate) fn insert_downward(
    block: &mut impl Edit,
    table: &Table,
    index: usize,
    entry: LeafEntry,
) {
    block.shift(table.start..table.at(index), table.start - ENTRY_SIZE);
    let at = table.at(index);
    put(block.edit(at - ENTRY_SIZE..at), entry);
}

/// Inserts an entry before `index` in place of the nearest stale entry. Returns false if none is stale.
pub(crate) fn insert_over_stale(
    block: &mut impl Edit,
    table: &Table,
    index: usize,
    entry: LeafEntry,
) -> bool {
    let bytes = block.bytes();
    let is_stale = |i: &usize| be32(bytes, table.at(*i) + 4) == 0;
    let after = (index..table.count).find(is_stale);
    let limit = after.map_or(0, |after| index.saturating_sub(after - index));
    let before = (limit..index).rev().find(is_stale);
    match (before, after) {
        (Some(before), _) => {
            block.shift(table.at(before + 1)..table.at(index), table.at(before));
            set_entry(block, table, index - 1, entry);
        }
        (None, Some(after)) => {
            block.shift(table.at(index)..table.at(after), table.at(index + 1));
            set_entry(block, table, index, entry);
        }
        (None, None) => return false,
    }
    true
}

/// Merges entries, which are sorted first, into a leaf in one pass. The last hash stays unless a higher one is added,
/// so the node above need not change. Returns false without a change if there is no room for all of them and one more,
/// even without the stale entries.
pub(crate) fn merge(layout: &DirLayout, block: &mut impl Edit, new: &mut [LeafEntry]) -> bool {
    new.sort_unstable_by_key(|entry| (entry.hash, entry.address));
    let (count, stale) = (table(layout, block.bytes()).count, stale(layout, block.bytes()));
    if count.saturating_sub(stale) + new.len() >= layout.leaf_capacity() {
        return false;
    }
    if count + new.len() > layout.leaf_capacity() {
        compact_before_last(layout, block);
    }
    let stale = self::stale(layout, block.bytes());
    let table = table(layout, block.bytes());
    let bytes = block.bytes();
    let places: SmallVec<[usize; MERGED_USUALLY]> =
        new.iter().map(|entry| table.lower_bound(bytes, entry.hash)).collect();
    let Some(&first) = places.first() else { return true };
    let start = table.at(first);
    let rows = block.edit(start..table.at(table.count + new.len()));
    // From the end, so that nothing is moved twice.
    let mut end = table.count;
    for (i, (entry, &place)) in new.iter().zip(&places).enumerate().rev() {
        let (from, to) = (table.at(place) - start, table.at(place + i) - start);
        rows.copy_within(from..table.at(end) - start, to + ENTRY_SIZE);
        put(&mut rows[to..to + ENTRY_SIZE], *entry);
        end = place;
    }
    set_counts(layout, block, table.count + new.len(), stale);
    true
}

/// Removes an entry from a table that shrinks at its end. The caller updates the counts.
pub(crate) fn remove_at(block: &mut impl Edit, table: &Table, index: usize) {
    if index + 1 < table.count {
        block.shift(table.at(index + 1)..table.end(), table.at(index));
    }
}

/// Makes an entry stale. The caller updates the stale count.
pub(crate) fn set_stale(block: &mut impl Edit, table: &Table, index: usize) {
    block.set32(table.at(index) + 4, 0);
}

/// Removes the stale entries of a table. Returns the number of remaining entries.
pub(crate) fn squeeze(block: &mut impl Edit, table: &Table) -> usize {
    let bytes = block.edit(table.start..table.end());
    let mut to = 0;
    for from in (0..bytes.len()).step_by(ENTRY_SIZE) {
        if be32(bytes, from + 4) != 0 {
            bytes.copy_within(from..from + ENTRY_SIZE, to);
            to += ENTRY_SIZE;
        }
    }
    to / ENTRY_SIZE
}

/// Removes the stale entries of a leaf.
pub(crate) fn compact(layout: &DirLayout, block: &mut impl Edit) {
    if stale(layout, block.bytes()) > 0 {
        let count = squeeze(block, &table(layout, block.bytes()));
        set_counts(layout, block, count, 0);
    }
}

/// Removes the stale entries of a leaf except the last entry, whose hash is in the node above.
fn compact_before_last(layout: &DirLayout, block: &mut impl Edit) {
    let table = table(layout, block.bytes());
    let Some(index) = table.count.checked_sub(1) else { return };
    let last = table.entry(block.bytes(), index);
    let count = squeeze(block, &Table { count: index, ..table });
    set_entry(block, &table, count, last);
    set_counts(layout, block, count + 1, usize::from(last.address == 0));
}

/// Returns the number of data blocks in the bests array of a single leaf.
pub(crate) fn bests_count(layout: &DirLayout, block: &[u8]) -> usize {
    let most = (layout.size() - layout.header() - 4) / 2;
    (be32(block, layout.size() - 4) as usize).min(most)
}

/// Sets the number of data blocks in the bests array of a single leaf. The array ends at a fixed offset, so its start
/// moves.
pub(crate) fn set_bests_count(layout: &DirLayout, block: &mut impl Edit, count: usize) {
    block.set32(layout.size() - 4, count as u32);
}

/// Returns the byte offset of the bests array of a single leaf for `count` blocks.
pub(crate) const fn bests_start(layout: &DirLayout, count: usize) -> usize {
    layout.size() - 4 - count * 2
}

/// Returns the number of bytes that a single leaf needs.
pub(crate) const fn single_size(layout: &DirLayout, entries: usize, data_blocks: usize) -> usize {
    layout.header() + entries * ENTRY_SIZE + data_blocks * 2 + 4
}

/// Checks that hashes ascend. Returns the number of stale entries. Checks the order in one branch-free pass, because
/// each changed leaf is checked before it is written.
fn verify_order(structure: &'static str, block: &[u8], table: &Table) -> Result<usize, Corruption> {
    let (rows, _) = block[table.start..table.end()].as_chunks::<ENTRY_SIZE>();
    let (mut last, mut stale, mut ascend) = (0, 0, true);
    for row in rows {
        let row = u64::from_be_bytes(*row);
        let hash = (row >> 32) as u32;
        ascend &= hash >= last;
        stale += usize::from(row as u32 == 0);
        last = hash;
    }
    if ascend {
        return Ok(stale);
    }
    let descends = |at: &usize| hash_of(&rows[*at]) < hash_of(&rows[*at - 1]);
    let index = (1..rows.len()).find(descends).unwrap_or_default();
    let (least, found) = (hash_of(&rows[index.saturating_sub(1)]), hash_of(&rows[index]));
    let damage = Corruption::new(structure, format!("order of hashes at entry {index}"));
    Err(damage.mismatch(format_args!("{least:#010x} or more"), format_args!("{found:#010x}")))
}

/// Checks the hash index of block form, and returns its table.
pub(super) fn verify_block_table(layout: &DirLayout, block: &[u8]) -> Result<Table, Corruption> {
    const NAME: &str = "directory block";
    let (count, stale) = tail(layout, block);
    let most = (layout.size() - TAIL_SIZE - layout.header()) / ENTRY_SIZE;
    if count as usize > most {
        return Err(Corruption::new(NAME, "entries of the hash index")
            .mismatch(format_args!("at most {most}"), count));
    }
    let table = block_table(layout, block);
    let found = verify_order(NAME, block, &table)?;
    if found != stale as usize {
        return Err(Corruption::new(NAME, "stale entries").mismatch(found, stale));
    }
    Ok(table)
}

/// Checks everything after the header of a leaf or node.
pub(super) fn verify(layout: &DirLayout, block: &[u8]) -> Result<(), Corruption> {
    let fault = |problem: &str| Corruption::new(NAME, problem);
    let raw = usize::from(be16(block, count_at(layout)));
    if raw > layout.leaf_capacity() {
        let most = layout.leaf_capacity();
        return Err(fault("count").mismatch(format_args!("at most {most}"), raw));
    }
    let kind = kind(layout, block);
    let table = table(layout, block);
    let zeros = verify_order(NAME, block, &table)?;
    if kind == Some(LeafKind::Node) {
        let level = level(layout, block);
        if level == 0 || level > LEVELS_MAX || raw == 0 || zeros > 0 {
            let problem = "a node with no entries, empty ones, or at a wrong level";
            return Err(fault(problem).mismatch("level 1 to 4", level));
        }
        return Ok(());
    }
    let stale = stale(layout, block);
    if stale != zeros {
        return Err(fault("stale entries").mismatch(zeros, stale));
    }
    if kind == Some(LeafKind::Single) {
        let bests = be32(block, layout.size() - 4) as usize;
        let room = (layout.size() - 4 - table.end()) / 2;
        if table.end() > layout.size() - 4 || bests > room {
            return Err(fault("data blocks described").mismatch("the maximum that fits", bests));
        }
    }
    Ok(())
}

/// Returns the counts in the tail of block form: entries of its hash index, and stale ones.
pub(super) fn tail(layout: &DirLayout, block: &[u8]) -> (u32, u32) {
    let at = layout.size() - TAIL_SIZE;
    (be32(block, at), be32(block, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimated search finds the same position as bisection, for any distribution of hashes.
    #[test]
    fn guesses_end_where_halving_does() {
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..3000 {
            let count = random.usize(0..300);
            // Evenly distributed, skewed, and with many duplicates.
            let shape = [0, 24, 29][round % 3];
            let mut hashes: Vec<u32> =
                (0..count).map(|_| random.u32(..) >> random.u32(..=shape)).collect();
            hashes.sort_unstable();
            let block: Vec<u8> =
                hashes.iter().flat_map(|hash| [hash.to_be_bytes(), [0; 4]].concat()).collect();
            // The range from the node above may be wrong.
            let between = random.bool().then(|| (random.u32(..), random.u32(..)));
            let table = Table { start: 0, count, between };
            let near = |hash: u32| [hash.saturating_sub(1), hash, hash.saturating_add(1)];
            let wanted = hashes.iter().flat_map(|&hash| near(hash)).chain([0, u32::MAX]);
            for wanted in wanted.take(100) {
                let expected = hashes.partition_point(|&hash| hash < wanted);
                assert_eq!(table.lower_bound(&block, wanted), expected, "{wanted} in {hashes:?}");
            }
        }
    }
}
