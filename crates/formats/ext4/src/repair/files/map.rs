//! Block maps for repair: reads everything readable of a map, and writes a new map.

use std::collections::{BTreeMap, HashSet};

use super::draft::Draft;
use super::inode_draft::InodeDraft;
use super::repair_context::RepairContext;
use crate::check::checked_image::CheckedImage;
use crate::format::address::{Block, FileBlock};
use crate::format::extent::{
    self, DEPTH_MAX, ENTRY_SIZE, Extent, ExtentNode, IndexEntry, UNWRITTEN_LEN_MAX, WRITTEN_LEN_MAX,
};
use crate::format::features::Incompat;
use crate::format::indirect::{self, DIRECT_COUNT, IndirectPath, LEVELS_MAX};
use crate::format::inode::{I_BLOCK_SIZE, flags};

/// `eh_magic`.
const MAGIC: [u8; 2] = [0x0a, 0xf3];
/// Maximum depth of a tree that is read. Valid trees have at most [`DEPTH_MAX`] levels, but deeper levels are read too.
const DEPTH_READ_MAX: u16 = 64;

/// A contiguous run of file blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileExtent {
    pub(super) first: u32,
    pub(super) start: Block,
    pub(super) len: u32,
    pub(super) unwritten: bool,
}

impl FileExtent {
    pub(super) fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.len)
    }

    /// Returns the part in the file blocks `from..to`.
    fn part(&self, from: u64, to: u64) -> Option<Self> {
        let (from, to) = (from.max(self.first.into()), to.min(self.end()));
        let skipped = from - u64::from(self.first);
        (from < to).then(|| Self {
            first: from as u32,
            start: self.start.plus(skipped),
            len: (to - from) as u32,
            unwritten: self.unwritten,
        })
    }
}

/// Contents of an inode's map.
#[derive(Clone, Default)]
pub(super) struct Map {
    /// Disjoint runs in file order, all inside the area for file blocks.
    pub(super) runs: Vec<FileExtent>,
    /// Blocks of the map itself that can be reused.
    pub(super) nodes: Vec<Block>,
    /// True if part of the map was skipped or must be rewritten.
    pub(super) is_damaged: bool,
    /// True if the device failed to read part of the map, so that it must not change.
    pub(super) is_unreadable: bool,
}

impl Map {
    /// Reads everything readable of a map: as extents if it looks like an extent tree, else as pointers.
    pub(super) fn read(checked: &CheckedImage, subject: &InodeDraft) -> Self {
        Self::read_without(checked, subject, HashSet::new())
    }

    /// Like [`Self::read`], but without some map blocks and everything below them.
    pub(super) fn read_without(
        checked: &CheckedImage,
        subject: &InodeDraft,
        met: HashSet<Block>,
    ) -> Self {
        let mut reader =
            MapReader { checked, map: Self::default(), met, seed: subject.block_seed() };
        if !subject.has_map() {
            return reader.map;
        }
        let root = subject.inode.i_block();
        let is_extents = looks_like_extents(checked, subject);
        if is_extents {
            reader.extents(root);
        } else {
            reader.pointers(root);
        }
        let mut map = reader.map;
        map.is_damaged |= is_extents != subject.has(flags::EXTENTS);
        map.settle();
        map
    }

    /// Sorts the runs and removes overlaps.
    fn settle(&mut self) {
        self.runs.sort_by_key(|run| run.first);
        let mut end = 0;
        let mut settled: Vec<FileExtent> = Vec::with_capacity(self.runs.len());
        for run in &self.runs {
            let part = run.part(end, u64::MAX);
            self.is_damaged |= part != Some(*run);
            let Some(part) = part else { continue };
            end = part.end();
            match settled.last_mut() {
                Some(last)
                    if last.end() == u64::from(part.first)
                        && last.start.plus(last.len.into()) == part.start
                        && last.unwritten == part.unwritten =>
                {
                    last.len += part.len;
                }
                _ => settled.push(part),
            }
        }
        self.runs = settled;
    }

    /// Returns the end of the mapped file blocks, exclusive.
    pub(super) fn end(&self) -> u64 {
        self.runs.last().map_or(0, FileExtent::end)
    }

    /// Returns the end of the written file blocks, exclusive.
    pub(super) fn written_end(&self) -> u64 {
        self.runs.iter().rev().find(|run| !run.unwritten).map_or(0, FileExtent::end)
    }

    /// Returns the device block of a file block.
    pub(super) fn place(&self, block: u32) -> Option<Block> {
        let run = self.runs[..self.runs.partition_point(|run| run.first <= block)].last()?;
        let within = block - run.first;
        (within < run.len).then(|| run.start.plus(within.into()))
    }

    /// Moves file blocks to other positions, or unmaps them.
    pub(super) fn replace(&mut self, changes: &BTreeMap<u32, Option<Block>>) {
        let mut runs = Vec::with_capacity(self.runs.len() + changes.len());
        let mut unwritten = HashSet::new();
        for run in &self.runs {
            let mut from = u64::from(run.first);
            let last = (run.end() - 1) as u32;
            for block in changes.range(run.first..=last).map(|(block, _)| *block) {
                runs.extend(run.part(from, block.into()));
                from = u64::from(block) + 1;
                if run.unwritten {
                    unwritten.insert(block);
                }
            }
            runs.extend(run.part(from, u64::MAX));
        }
        for (block, place) in changes {
            let unwritten = unwritten.contains(block);
            runs.extend(place.map(|start| FileExtent { first: *block, start, len: 1, unwritten }));
        }
        self.runs = runs;
        self.settle();
    }

    /// Unmaps all file blocks from `end` on.
    pub(super) fn truncate(&mut self, end: u64) {
        self.runs = self.runs.iter().filter_map(|run| run.part(0, end)).collect();
    }

    /// Returns the number of clusters of the file, including its map blocks.
    pub(super) fn clusters(&self, checked: &CheckedImage) -> u64 {
        let log = checked.geometry().cluster_blocks_log;
        let mut last = None;
        let mut count = self.nodes.len() as u64;
        for run in &self.runs {
            let clusters = checked.clusters(run.start, run.len.into());
            let is_same = log > 0 && last == Some((run.first >> log, clusters.start));
            count += clusters.end - clusters.start - u64::from(is_same);
            last = Some((((run.end() - 1) >> log) as u32, clusters.end - 1));
        }
        count
    }
}

/// Returns whether the map in an inode is an extent tree. The flag decides unless the contents are unambiguous.
fn looks_like_extents(checked: &CheckedImage, subject: &InodeDraft) -> bool {
    let root = subject.inode.i_block();
    let is_header = root[..2] == MAGIC && ExtentNode::parse(root, None).is_ok();
    let can_be = checked.params().sb.features.incompat(Incompat::EXTENTS);
    if !subject.has(flags::EXTENTS) {
        return is_header && can_be;
    }
    if root[..2] == MAGIC || root.iter().all(|&byte| byte == 0) {
        return true;
    }
    let is_pointer = |index: u16| {
        indirect::pointer(root, index).is_none_or(|block| checked.can_be_of_file(block, 1))
    };
    !(0..(I_BLOCK_SIZE / 4) as u16).all(is_pointer)
}

struct MapReader<'s> {
    checked: &'s CheckedImage,
    map: Map,
    /// Nodes already read, so that the walk ends.
    met: HashSet<Block>,
    /// Checksum seed of the inode's blocks, if there are checksums.
    seed: Option<u32>,
}

/// A node to be read: its block, its first file block, and its depth.
struct Child {
    block: Block,
    key: u32,
    depth: u16,
}

/// An entry of a node.
#[derive(Clone, Copy)]
enum NodeEntry {
    Extent(FileExtent),
    Index { key: u32, block: Block },
}

impl NodeEntry {
    /// Returns its first file block.
    fn first(&self) -> u32 {
        match self {
            Self::Extent(run) => run.first,
            Self::Index { key, .. } => *key,
        }
    }
}

/// Returns the positions of a longest sequence of items with ascending keys. A few wrong keys among many right ones are
/// left out, however far off they are.
fn in_order<T>(items: &[T], key: impl Fn(&T) -> u32) -> Vec<usize> {
    // Index: length of a sequence, minus one. Value: position of the item with the lowest key that ends such a
    // sequence.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let key_here = key(item);
        let len = ends.partition_point(|&end| key(&items[end]) < key_here);
        before.push(len.checked_sub(1).map(|last| ends[last]));
        match ends.get_mut(len) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut chain: Vec<usize> =
        std::iter::successors(ends.last().copied(), |&at| before[at]).collect();
    chain.reverse();
    chain
}

impl MapReader<'_> {
    /// Reads an extent tree in the order of its entries. Conflicts between the extents are then resolved by
    /// [`in_order`].
    fn extents(&mut self, root: &[u8]) {
        let mut children = Vec::new();
        self.node(root, None, &mut children);
        children.reverse();
        while let Some(child) = children.pop() {
            if !self.met.insert(child.block) {
                self.map.is_damaged = true;
                continue;
            }
            let Some(bytes) = self.checked.block(child.block) else {
                self.map.is_unreadable = true;
                continue;
            };
            let before = children.len();
            if self.node(&bytes, Some(&child), &mut children) {
                self.map.nodes.push(child.block);
            }
            children[before..].reverse();
        }
        let ordered = in_order(&self.map.runs, |run| run.first);
        self.map.is_damaged |= ordered.len() != self.map.runs.len();
        let mut runs: Vec<FileExtent> = ordered.into_iter().map(|at| self.map.runs[at]).collect();
        // An extent with a wrong length ends where the next one starts.
        for at in 1..runs.len() {
            let next = u64::from(runs[at].first);
            if let Some(part) = runs[at - 1].part(0, next) {
                self.map.is_damaged |= part != runs[at - 1];
                runs[at - 1] = part;
            }
        }
        self.map.runs = runs;
    }

    /// Reads the plausible entries of a node. Returns `false` if the block is not a node.
    fn node(&mut self, bytes: &[u8], child: Option<&Child>, children: &mut Vec<Child>) -> bool {
        let expected = child.map(|child| child.depth);
        let sound = ExtentNode::parse(bytes, expected);
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let is_node = bytes[..2] == MAGIC;
        // A node below the root with an entry count of 0 is treated like one without a header: implementations leave no
        // empty nodes.
        let is_empty = child.is_some() && word(2) == 0;
        let has_magic = is_node && !is_empty;
        self.map.is_damaged |= sound.is_err() || is_empty;
        let room = usize::from(extent::capacity(bytes.len()));
        let depth = expected.unwrap_or(if is_node { word(6) } else { 0 });
        if depth > DEPTH_READ_MAX {
            return false;
        }
        let is_count_known = has_magic && usize::from(word(2)) <= room;
        let count = if is_count_known { word(2).into() } else { room };
        let entries = |at: usize| bytes[extent::entry_range(at)].first_chunk::<ENTRY_SIZE>();
        let mut found: Vec<NodeEntry> = Vec::new();
        for at in 0..count {
            let Some(entry) = entries(at).and_then(|entry| self.entry(entry, depth)) else {
                self.map.is_damaged = true;
                if is_count_known { continue } else { break }
            };
            // Without a header, a node is read only if it starts at the file block that its parent names, up to the
            // first wrong entry.
            let is_first_wrong =
                at == 0 && !has_magic && child.is_some_and(|child| child.key != entry.first());
            let is_behind = found.last().is_some_and(|last| entry.first() <= last.first());
            if !is_count_known && (is_first_wrong || is_behind) {
                break;
            }
            found.push(entry);
        }
        let taken = found.len();
        self.take(found, depth, children);
        is_node || taken > 0
    }

    /// Takes entries of a node: all extents, and index entries that are in order or refer to a node with a valid header
    /// and checksum.
    fn take(&mut self, found: Vec<NodeEntry>, depth: u16, children: &mut Vec<Child>) {
        let in_order: HashSet<usize> = in_order(&found, NodeEntry::first).into_iter().collect();
        for (at, entry) in found.into_iter().enumerate() {
            match entry {
                NodeEntry::Extent(run) => self.map.runs.push(run),
                NodeEntry::Index { key, block } => {
                    let child = Child { block, key, depth: depth - 1 };
                    if in_order.contains(&at) || self.is_sound_node(&child) {
                        children.push(child);
                    } else {
                        self.map.is_damaged = true;
                    }
                }
            }
        }
    }

    /// Returns true if a block is a node of this depth, with a checksum of this inode if there are checksums.
    fn is_sound_node(&self, child: &Child) -> bool {
        self.checked.block(child.block).is_some_and(|bytes| {
            ExtentNode::parse(&bytes, Some(child.depth)).is_ok()
                && extent::verify(&bytes, self.seed).is_ok()
        })
    }

    /// Parses an entry. Returns `None` if its blocks cannot be those of a file.
    fn entry(&self, bytes: &[u8; ENTRY_SIZE], depth: u16) -> Option<NodeEntry> {
        let level = depth.min(1);
        let mut node = [0; 2 * ENTRY_SIZE];
        extent::write_header(&mut node[..ENTRY_SIZE], 1, 1, level);
        node[extent::entry_range(0)].copy_from_slice(bytes);
        let node = ExtentNode::parse(&node, Some(level)).ok()?;
        if level > 0 {
            let entry = node.index(0);
            let is_good = self.checked.can_be_of_file(entry.leaf, 1);
            return is_good.then_some(NodeEntry::Index { key: entry.block.0, block: entry.leaf });
        }
        let Extent { block, len, start, unwritten } = node.extent(0);
        let is_good = self.checked.geometry().contains(start, len.into());
        is_good.then_some(NodeEntry::Extent(FileExtent { first: block.0, start, len, unwritten }))
    }

    fn pointers(&mut self, root: &[u8]) {
        let per_block = u64::from(self.checked.geometry().block_size()) / 4;
        // Pointer blocks to be read: the block, its first file block, and the levels below.
        let mut pending: Vec<(Block, u64, usize)> = Vec::new();
        let mut first = 0;
        for index in 0..(DIRECT_COUNT as usize + LEVELS_MAX) as u16 {
            let level = (usize::from(index) + 1).saturating_sub(DIRECT_COUNT as usize);
            self.pointer(root, index, first, level, &mut pending);
            first += per_block.pow(level as u32);
        }
        while let Some((block, first, level)) = pending.pop() {
            if !self.met.insert(block) {
                self.map.is_damaged = true;
                continue;
            }
            let Some(bytes) = self.checked.block(block) else {
                self.map.is_unreadable = true;
                continue;
            };
            self.map.nodes.push(block);
            let span = per_block.pow(level as u32 - 1);
            for index in 0..per_block as u16 {
                let first = first + u64::from(index) * span;
                self.pointer(&bytes, index, first, level - 1, &mut pending);
            }
        }
        // Reuse the nodes in ascending order.
        self.map.nodes.sort_unstable();
    }

    fn pointer(
        &mut self,
        bytes: &[u8],
        index: u16,
        first: u64,
        level: usize,
        pending: &mut Vec<(Block, u64, usize)>,
    ) {
        let Some(block) = indirect::pointer(bytes, index) else { return };
        let is_inside = match level {
            0 => self.checked.geometry().contains(block, 1),
            _ => self.checked.can_be_of_file(block, 1),
        };
        let (true, Ok(number)) = (is_inside, u32::try_from(first)) else {
            self.map.is_damaged = true;
            return;
        };
        if level > 0 {
            pending.push((block, first, level));
            return;
        }
        match self.map.runs.last_mut() {
            Some(run)
                if run.end() == first
                    && run.start.plus(run.len.into()) == block
                    && !run.unwritten =>
            {
                run.len += 1;
            }
            _ => self.map.runs.push(FileExtent {
                first: number,
                start: block,
                len: 1,
                unwritten: false,
            }),
        }
    }
}

/// Writes a map to an inode: extents if the file system supports them and the inode had them, else pointers. Reuses the
/// blocks of the old map, and allocates more if necessary. Returns `false`, with an unusable draft, if there is no
/// room.
pub(super) fn write(
    context: &mut RepairContext<'_>,
    subject: &mut InodeDraft,
    map: &mut Map,
    draft: &mut Draft,
) -> bool {
    let can_have = context.checked.params().sb.features.incompat(Incompat::EXTENTS);
    let knows_pointers = context.checked.geometry().cluster_blocks() == 1;
    let is_extents = can_have && (!knows_pointers || looks_like_extents(&context.checked, subject));
    let mut nodes = std::mem::take(&mut map.nodes);
    if !nodes.is_empty() && context.shares(&nodes) {
        // Other inodes still need these nodes and the blocks below them.
        nodes.clear();
    }
    let mut writer = MapWriter {
        seed: subject.block_seed(),
        size: context.block_size(),
        context,
        spare: nodes.into_iter().rev().collect(),
        used: Vec::new(),
        draft,
    };
    let root = if is_extents { writer.extents(&map.runs) } else { writer.pointers(&map.runs) };
    map.nodes = writer.used;
    let Some(root) = root else { return false };
    subject.inode.set_flag(flags::EXTENTS, is_extents);
    *subject.inode.i_block_mut() = root;
    true
}

/// Removes clusters of the file system itself from a file.
pub(super) fn take_system(
    context: &RepairContext<'_>,
    map: &Map,
    changes: &mut BTreeMap<u32, Option<Block>>,
) {
    let geometry = context.checked.geometry();
    let cluster_blocks = u64::from(geometry.cluster_blocks());
    for run in &map.runs {
        let start = geometry.cluster_start(run.start);
        let len = run.start.0 - start.0 + u64::from(run.len);
        if context.checked.is_system(start, len.next_multiple_of(cluster_blocks)) {
            let is_own = |at: &u32| {
                let cluster = geometry.cluster_start(run.start.plus((*at).into()));
                context.checked.is_system(cluster, cluster_blocks)
            };
            changes.extend((0..run.len).filter(is_own).map(|at| (run.first + at, None)));
        }
    }
}

/// Gives an inode an empty map.
pub(super) fn write_empty(checked: &CheckedImage, subject: &mut InodeDraft) {
    let is_extents = checked.params().sb.features.incompat(Incompat::EXTENTS);
    let root = subject.inode.i_block_mut();
    root.fill(0);
    if is_extents {
        let room = extent::capacity(I_BLOCK_SIZE);
        extent::write_header(&mut root[..ENTRY_SIZE], 0, room, 0);
    }
    subject.inode.set_flag(flags::EXTENTS, is_extents);
}

struct MapWriter<'w, 'j> {
    context: &'w mut RepairContext<'j>,
    seed: Option<u32>,
    size: usize,
    /// Blocks of the old map; the next to use is the last.
    spare: Vec<Block>,
    used: Vec<Block>,
    draft: &'w mut Draft,
}

impl MapWriter<'_, '_> {
    fn take(&mut self) -> Option<Block> {
        let block = match self.spare.pop() {
            Some(block) => block,
            None => self.context.take_cluster()?,
        };
        self.used.push(block);
        Some(block)
    }

    fn put(&mut self, block: Block, bytes: Vec<u8>) {
        let offset = self.context.byte_of(block);
        self.draft.write(offset, bytes);
    }

    fn extents(&mut self, runs: &[FileExtent]) -> Option<[u8; I_BLOCK_SIZE]> {
        let mut entries: Vec<[u8; ENTRY_SIZE]> = Vec::new();
        for run in runs {
            let most = if run.unwritten { UNWRITTEN_LEN_MAX } else { WRITTEN_LEN_MAX };
            let mut from = u64::from(run.first);
            while let Some(part) = run.part(from, from + u64::from(most)) {
                let FileExtent { first, start, len, unwritten } = part;
                let extent = Extent { block: FileBlock(first), len, start, unwritten };
                entries.push(extent.encode());
                from = part.end();
            }
        }
        let mut depth = 0;
        while entries.len() > usize::from(extent::capacity(I_BLOCK_SIZE)) {
            entries = self.extent_level(&entries, depth)?;
            depth += 1;
        }
        let mut root = [0; I_BLOCK_SIZE];
        write_node(&mut root, &entries, depth);
        (depth <= DEPTH_MAX).then_some(root)
    }

    /// Writes one level of nodes. Returns the index entries for them.
    fn extent_level(
        &mut self,
        entries: &[[u8; ENTRY_SIZE]],
        depth: u16,
    ) -> Option<Vec<[u8; ENTRY_SIZE]>> {
        let mut above = Vec::new();
        for chunk in entries.chunks(extent::capacity(self.size).into()) {
            let leaf = self.take()?;
            let mut bytes = vec![0; self.size];
            write_node(&mut bytes, chunk, depth);
            if let Some(seed) = self.seed {
                extent::seal(&mut bytes, seed);
            }
            self.put(leaf, bytes);
            let first = [chunk[0][0], chunk[0][1], chunk[0][2], chunk[0][3]];
            let block = FileBlock(u32::from_le_bytes(first));
            above.push(IndexEntry { block, leaf }.encode());
        }
        Some(above)
    }

    fn pointers(&mut self, runs: &[FileExtent]) -> Option<[u8; I_BLOCK_SIZE]> {
        let mut root = [0; I_BLOCK_SIZE];
        // Pointer blocks on the path to the last file block: index in the parent, position and contents. They are
        // written when the path moves on.
        let mut way: Vec<(u16, Block, Vec<u8>)> = Vec::new();
        for run in runs {
            for at in 0..run.len {
                let path = IndirectPath::to(FileBlock(run.first + at), self.size as u32)?;
                let (last, steps) = path.indexes().split_last()?;
                let common =
                    way.iter().zip(steps).take_while(|(open, step)| open.0 == **step).count();
                self.close(&mut way, common);
                for step in &steps[common..] {
                    let block = self.take()?;
                    let above = way.last_mut().map_or(&mut root[..], |(_, _, bytes)| bytes);
                    put_pointer(above, *step, block)?;
                    way.push((*step, block, vec![0; self.size]));
                }
                let above = way.last_mut().map_or(&mut root[..], |(_, _, bytes)| bytes);
                put_pointer(above, *last, run.start.plus(at.into()))?;
            }
        }
        self.close(&mut way, 0);
        Some(root)
    }

    fn close(&mut self, way: &mut Vec<(u16, Block, Vec<u8>)>, keep: usize) {
        for (_, block, bytes) in way.drain(keep..) {
            self.put(block, bytes);
        }
    }
}

fn put_pointer(bytes: &mut [u8], index: u16, block: Block) -> Option<()> {
    let at = usize::from(index) * 4;
    let number = u32::try_from(block.0).ok()?;
    bytes.get_mut(at..at + 4)?.copy_from_slice(&number.to_le_bytes());
    Some(())
}

fn write_node(bytes: &mut [u8], entries: &[[u8; ENTRY_SIZE]], depth: u16) {
    let room = extent::capacity(bytes.len());
    extent::write_header(&mut bytes[..ENTRY_SIZE], entries.len() as u16, room, depth);
    for (at, entry) in entries.iter().enumerate() {
        bytes[extent::entry_range(at)].copy_from_slice(entry);
    }
}
