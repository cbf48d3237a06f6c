//! Finding names.

use smallvec::SmallVec;
use vfs::{Ino, Result};

use super::FoundInode;
use super::insert_buffer::BufferedAddresses;
use super::view::View;
use crate::format::address::FileBlock;
use crate::format::dir::data::{self, Dirent};
use crate::format::dir::leaf::{self, LEVELS_MAX, LeafEntry, LeafKind, Table};
use crate::format::dir::short::{Short, ShortEntry};
use crate::format::dir::{DirBlockKind, DirLayout};
use crate::format::hash;
use crate::format::inode::{Fork, ForkFormat};
use crate::inode::Handle;
use crate::op::source::Source;

/// The form of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirForm {
    Short,
    Block,
    Leaf,
    Node,
}

/// Quality of the match between an entry's name and the name searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    Folded,
    Exact,
}

fn compare(layout: &DirLayout, name: &[u8], wanted: &[u8]) -> Option<Match> {
    if name == wanted {
        return Some(Match::Exact);
    }
    (layout.folds_case && hash::folded_eq(name, wanted)).then_some(Match::Folded)
}

/// Location of an entry in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(super) found: FoundInode,
    /// Hash of its name.
    pub(super) hash: u32,
    /// The number of its data block.
    pub(super) number: u32,
    /// Byte offset of the entry in the data block.
    pub(super) offset: usize,
    /// The leaf with its hash; 0 in block form.
    pub(super) leaf: FileBlock,
    /// Index of its hash in the leaf or in the block's hash index.
    pub(super) index: usize,
    /// Number of leaves from the first that may have the hash to the entry's own.
    pub(super) hops: u64,
    /// True if the hash is only in the insert buffer. If so, `index` is meaningless.
    pub(super) is_buffered: bool,
}

impl Spot {
    /// Returns the entry in the hash index.
    pub(super) fn entry(&self, layout: &DirLayout) -> LeafEntry {
        LeafEntry { hash: self.hash, address: layout.address(self.number, self.offset) }
    }
}

/// The path to a leaf: nodes from the root down, each with the index of the entry followed.
#[derive(Clone, Debug)]
pub(super) struct IndexPath {
    pub(super) nodes: SmallVec<[(FileBlock, usize); LEVELS_MAX as usize]>,
    pub(super) leaf: FileBlock,
}

/// The result of a search for a name.
pub(super) struct Search {
    /// The leaf that an entry with this hash would go to.
    pub(super) path: IndexPath,
    pub(super) hash: u32,
    pub(super) spot: Option<Spot>,
    /// True if the leaf was not read, because the filter shows that it does not have the hash.
    pub(super) is_absent: bool,
}

impl<S: Source> View<'_, S> {
    /// Returns the form of the directory.
    pub(super) fn form(&mut self) -> Result<DirForm> {
        if self.dir.inode.fork_format(Fork::Data) == ForkFormat::Local {
            return Ok(DirForm::Short);
        }
        if self.source.is_known_node(self.dir) {
            return Ok(DirForm::Node);
        }
        let layout = self.layout;
        if self.data_blocks()? == 1
            && self.with(FileBlock(0), DirBlockKind::Data, |b| {
                crate::format::dir::is_block_form(&layout, b)
            })?
        {
            return Ok(DirForm::Block);
        }
        let kind =
            self.with(layout.leaf_first(), DirBlockKind::Leaf, |b| leaf::kind(&layout, b))?;
        Ok(if kind == Some(LeafKind::Single) { DirForm::Leaf } else { DirForm::Node })
    }

    /// Returns the shortform directory.
    pub(super) fn short(&self) -> Result<Short<'_>> {
        short(self.source, self.dir)
    }

    /// Looks a name up, including `..`.
    pub(super) fn lookup(&mut self, name: &[u8]) -> Result<Option<FoundInode>> {
        let form = self.form()?;
        Ok(match form {
            DirForm::Short => self.find_short(name)?.map(|(found, _)| found),
            DirForm::Block => self.find_in_block(name)?.map(|spot| spot.found),
            DirForm::Leaf | DirForm::Node => self.search(name)?.spot.map(|spot| spot.found),
        })
    }

    /// Looks a name up. Also returns the location of its entry if the directory has node form.
    pub(super) fn locate(&mut self, name: &[u8]) -> Result<Option<(FoundInode, Option<Spot>)>> {
        if self.form()? != DirForm::Node {
            return Ok(self.lookup(name)?.map(|found| (found, None)));
        }
        let spot = self.search(name)?.spot;
        Ok(spot.map(|spot| (spot.found, Some(spot))))
    }

    /// Returns the name as stored in the directory entry that matches, or `None` without a match.
    pub(super) fn stored_name(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let spot = match self.form()? {
            DirForm::Short => {
                let offset = self.find_short(name)?.map(|(_, offset)| offset);
                let short = self.short()?;
                let entry = short.entries().find(|entry| Some(entry.offset) == offset);
                return Ok(entry.map(|entry| entry.name.to_vec()));
            }
            DirForm::Block => self.find_in_block(name)?,
            DirForm::Leaf | DirForm::Node => self.search(name)?.spot,
        };
        let Some(Spot { number, offset, .. }) = spot else { return Ok(None) };
        let layout = self.layout;
        self.with(layout.data_at(number), DirBlockKind::Data, |block| {
            data::entry_at(&layout, block, offset).map(|entry| entry.name.to_vec())
        })
    }

    /// Looks a name up in shortform, and returns its offset, too.
    pub(super) fn find_short(&self, name: &[u8]) -> Result<Option<(FoundInode, usize)>> {
        let short = self.short()?;
        if name == b".." {
            let file_type = Some(vfs::FileType::Directory);
            return Ok(Some((
                FoundInode { ino: short.parent(), file_type },
                self.layout.dot_dot(),
            )));
        }
        let found = |entry: ShortEntry<'_>| {
            let found = FoundInode { ino: entry.ino, file_type: entry.file_type() };
            (found, entry.offset)
        };
        let matches = |entry: &ShortEntry<'_>| compare(&self.layout, entry.name, name);
        let mut entries = short.entries().filter(|entry| matches(entry).is_some());
        let Some(first) = entries.next() else { return Ok(None) };
        let exact = entries.find(|entry| entry.name == name);
        Ok(Some(found(if first.name == name { first } else { exact.unwrap_or(first) })))
    }

    /// Looks a name up in block form.
    pub(super) fn find_in_block(&mut self, name: &[u8]) -> Result<Option<Spot>> {
        let (layout, dir) = (self.layout, self.dir);
        self.with(FileBlock(0), DirBlockKind::Data, |block| {
            let table = leaf::block_table(&layout, block);
            let mut best: Option<(Match, Spot)> = None;
            for (index, entry) in table.equal(block, layout.hash(name)) {
                let (_, offset) = layout.split_address(entry.address);
                let Some(dirent) = data::entry_at(&layout, block, offset) else { continue };
                let Some(matched) = compare(&layout, dirent.name, name) else { continue };
                if matched == Match::Exact && best.is_some_and(|(other, _)| other == matched) {
                    return Err(second_entry(dir));
                }
                if best.is_none_or(|(other, _)| matched > other) {
                    let spot = Spot {
                        found: found(&dirent),
                        hash: entry.hash,
                        number: 0,
                        offset,
                        leaf: FileBlock(0),
                        index,
                        hops: 0,
                        is_buffered: false,
                    };
                    best = Some((matched, spot));
                }
            }
            Ok(best.map(|(_, spot)| spot))
        })?
    }

    /// Descends to the first leaf that may have a hash, and calls `look` with it. With nodes, calls `arrive` first,
    /// with the leaf and its highest hash according to the node above. `look` is skipped if `arrive` returns false.
    pub(super) fn descend<T>(
        &mut self,
        hash: u32,
        mut look: impl FnMut(&[u8], &Table) -> T,
        mut arrive: impl FnMut(&mut Self, FileBlock, u32) -> bool,
    ) -> Result<(IndexPath, Option<T>)> {
        let layout = self.layout;
        let mut path = IndexPath { nodes: SmallVec::new(), leaf: layout.leaf_first() };
        let (mut level, mut between) = (None, None);
        loop {
            let at = path.leaf;
            let step = self.with(at, DirBlockKind::Leaf, |block| {
                let table = Table { between, ..leaf::table(&layout, block) };
                if leaf::kind(&layout, block) != Some(LeafKind::Node) {
                    return Descent::Leaf(look(block, &table));
                }
                let index = table.lower_bound(block, hash).min(table.count.saturating_sub(1));
                let LeafEntry { hash: highest, address: child } = table.entry(block, index);
                let lowest = index.checked_sub(1).map_or(0, |i| table.entry(block, i).hash);
                between = Some((lowest, highest));
                Descent::Node { level: leaf::level(&layout, block), index, child, highest }
            })?;
            match step {
                Descent::Leaf(seen) if level.is_none_or(|level| level == 1) => {
                    return Ok((path, Some(seen)));
                }
                Descent::Node { level: found, index, child, highest }
                    if found > 0 && level.is_none_or(|level| level == found + 1) =>
                {
                    path.nodes.push((at, index));
                    path.leaf = check_index_block(self.dir, &layout, child)?;
                    level = Some(found);
                    if found == 1 && !arrive(self, path.leaf, highest) {
                        return Ok((path, None));
                    }
                }
                _ => {
                    return Err(self.dir.corrupt("directory node", format!("level of block {at}")));
                }
            }
        }
    }

    /// Looks a name up through the leaf or the nodes.
    pub(super) fn search(&mut self, name: &[u8]) -> Result<Search> {
        let layout = self.layout;
        let hash = layout.hash(name);
        let mut buffered = BufferedAddresses::new();
        let (path, row) = self.descend(
            hash,
            |block, table| Row::of(block, table, hash),
            |view, at, highest| view.arrive((at, highest), hash, &mut buffered),
        )?;
        let Some(mut row) = row else {
            return Ok(Search { path, hash, spot: None, is_absent: true });
        };
        let (mut at, mut best) = (path.leaf, None);
        for address in buffered {
            if let Some((matched, spot)) =
                self.candidate((at, 0), LeafEntry { hash, address }, name)?
                && best.is_none_or(|(other, _)| matched > other)
            {
                best = Some((matched, Spot { is_buffered: true, ..spot }));
            }
        }
        // Detects cycles of siblings (Brent's algorithm): the mark moves on after a number of steps that doubles each
        // time, so a cyclic search meets it eventually.
        let (mut hops, mut mark) = (0_u64, at);
        loop {
            for &(index, address) in &row.candidates {
                let entry = LeafEntry { hash, address };
                let Some((matched, spot)) = self.candidate((at, index), entry, name)? else {
                    continue;
                };
                if best.is_some_and(|other| is_second(&other, &(matched, spot))) {
                    return Err(second_entry(self.dir));
                }
                if best.is_none_or(|(other, _)| matched > other) {
                    best = Some((matched, Spot { hops, ..spot }));
                }
            }
            let is_exact = best.is_some_and(|(matched, _)| matched == Match::Exact);
            if is_exact || !row.goes_on || row.forw == 0 {
                let spot = best.map(|(_, spot)| spot);
                return Ok(Search { path, hash, spot, is_absent: false });
            }
            let next = check_index_block(self.dir, &layout, row.forw)?;
            if next == mark {
                return Err(self.dir.corrupt("directory leaf", "its siblings form a loop"));
            }
            row = self.next_row(next, at, hash)?;
            at = next;
            hops += 1;
            if hops.is_power_of_two() {
                mark = at;
            }
        }
    }

    /// Collects the buffered entries of a leaf, before the leaf is read. Returns false if neither the buffer nor the
    /// leaf has the hash.
    ///
    /// A reader must search the buffer first, because entries may move from the buffer into the leaf at any time.
    fn arrive(
        &mut self,
        (at, highest): (FileBlock, u32),
        hash: u32,
        buffered: &mut BufferedAddresses,
    ) -> bool {
        let leaf = self.layout.leaf_number(at);
        let Some(insert_buffer) = self.insert_buffer else {
            *buffered = self.source.buffered(self.dir.ino(), leaf, hash);
            return true;
        };
        if hash < highest && insert_buffer.lacks(leaf, hash) {
            return false;
        }
        *buffered = insert_buffer.with_hash(leaf, hash);
        true
    }

    /// Returns the entries with a hash in the leaf after `before`.
    fn next_row(&mut self, at: FileBlock, before: FileBlock, hash: u32) -> Result<Row> {
        let layout = self.layout;
        let row = self.with(at, DirBlockKind::Leaf, |block| {
            let is_leaf = leaf::kind(&layout, block) == Some(LeafKind::Many);
            let (back, _) = leaf::siblings(block);
            let fits = is_leaf && u64::from(back) == before.0;
            fits.then(|| Row::of(block, &leaf::table(&layout, block), hash))
        })?;
        let problem = || format!("block {at} does not follow block {before}");
        row.ok_or_else(|| self.dir.corrupt("directory leaf", problem()))
    }

    /// Compares the name of an entry of the index with the name searched for. Returns `None` if they differ.
    fn candidate(
        &mut self,
        (leaf, index): (FileBlock, usize),
        LeafEntry { hash, address }: LeafEntry,
        name: &[u8],
    ) -> Result<Option<(Match, Spot)>> {
        let layout = self.layout;
        let (number, offset) = layout.split_address(address);
        let outcome = self.with_if(layout.data_at(number), DirBlockKind::Data, |block| {
            let dirent = data::entry_at(&layout, block, offset)?;
            let matched = compare(&layout, dirent.name, name);
            Some(matched.map(|matched| {
                let found = found(&dirent);
                let (hops, is_buffered) = (0, false);
                (matched, Spot { found, hash, number, offset, leaf, index, hops, is_buffered })
            }))
        })?;
        outcome.flatten().ok_or_else(|| {
            let problem =
                format!("entry {index} of block {leaf} refers to an offset without an entry");
            self.dir.corrupt("directory leaf", problem)
        })
    }
}

/// Returns whether two different entries both match the name exactly. One entry may be found twice: it may have moved
/// from the insert buffer into its leaf after the buffer was searched.
fn is_second((matched, spot): &(Match, Spot), (other, found): &(Match, Spot)) -> bool {
    (*matched, *other) == (Match::Exact, Match::Exact)
        && (spot.number, spot.offset) != (found.number, found.offset)
}

fn second_entry(dir: &Handle) -> vfs::Error {
    dir.corrupt("directory entry", "a second entry with the requested name")
}

/// The contents of one block met in a descent.
enum Descent<T> {
    Leaf(T),
    Node { level: u16, index: usize, child: u32, highest: u32 },
}

/// The entries with a hash in a leaf.
struct Row {
    candidates: SmallVec<[(usize, u32); 4]>,
    /// True if the next leaf may have more.
    goes_on: bool,
    forw: u32,
}

impl Row {
    fn of(block: &[u8], table: &Table, hash: u32) -> Self {
        Self {
            candidates: table.equal(block, hash).map(|(i, entry)| (i, entry.address)).collect(),
            goes_on: table.count > 0 && table.last_hash(block) == hash,
            forw: leaf::siblings(block).1,
        }
    }
}

fn found(dirent: &Dirent<'_>) -> FoundInode {
    FoundInode { ino: Ino(dirent.ino.0), file_type: dirent.file_type }
}

/// Returns the shortform directory of an inode.
pub(super) fn short<'d>(source: &impl Source, dir: &'d Handle) -> Result<Short<'d>> {
    let geometry = &source.fs().volume.geometry;
    let fork = dir.inode.fork(Fork::Data);
    let size = usize::try_from(dir.inode.size()).unwrap_or(usize::MAX);
    let Some(bytes) = fork.get(..size) else {
        return Err(dir.corrupt("shortform directory", "its size exceeds its fork"));
    };
    let short = Short::parse(&DirLayout::new(geometry), geometry, bytes);
    short.map_err(|c| c.of_inode(dir.ino().0).into())
}

/// Checks that a block number from a node or a sibling pointer is within the hash index.
pub(super) fn check_index_block(dir: &Handle, layout: &DirLayout, at: u32) -> Result<FileBlock> {
    let (first, end) = (layout.leaf_first(), layout.free_first());
    let at = FileBlock(at.into());
    let is_good = at > first && at < end && (at.0 - first.0).is_multiple_of(layout.blocks().into());
    if is_good {
        return Ok(at);
    }
    Err(dir
        .corrupt("directory node", format!("it points to block {at}, which is not an index block")))
}
