//! Moving the blocks of a file: its data and its map blocks.

use std::ops::Range;

use vfs::Result;

use super::mover::Mover;
use crate::format::address::Block;
use crate::format::extent::{
    self, ENTRY_SIZE, Extent, ExtentNode, IndexEntry, UNWRITTEN_LEN_MAX, WRITTEN_LEN_MAX, capacity,
};
use crate::format::indirect::{self, DIRECT_COUNT};
use crate::format::inode::{I_BLOCK_SIZE, Inode, flags};
use vfs::FileType;

/// Maximum number of groups whose bitmaps change for one file in a step. The rest is moved in the next step.
const GROUPS_AT_ONCE: usize = 64;

/// Modifies a block while it is copied. Receives the file block, the new device block, and the contents.
pub(super) type BlockPatch<'c> = dyn Fn(u32, Block, &mut [u8]) + 'c;

/// Parameters for moving a file.
pub(super) struct How<'c> {
    /// Inode that the file will belong to, which determines checksums.
    pub(super) ino: u32,
    /// True to move all blocks, wherever they are.
    pub(super) all: bool,
    /// For metadata contents: modifies each block while it is copied.
    pub(super) change: Option<&'c BlockPatch<'c>>,
    /// First file block that becomes zero in the new position.
    pub(super) zeros_from: u32,
}

impl How<'_> {
    /// Moves blocks past the new end unchanged.
    pub(super) fn plain(ino: u32) -> Self {
        Self { ino, all: false, change: None, zeros_from: u32::MAX }
    }
}

/// Returns whether an inode has a block map.
pub(super) fn has_map(inode: &Inode) -> bool {
    if inode.has_flag(flags::INLINE_DATA) {
        return false;
    }
    match inode.file_type() {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => inode.size() >= I_BLOCK_SIZE as u64,
        _ => false,
    }
}

/// Result of moving a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// True if any block was moved.
    pub(super) any: bool,
    /// True if blocks are left that had no room in this step.
    pub(super) more: bool,
}

/// Extents of a file and the blocks of its tree.
#[derive(Default)]
pub(super) struct ExtentTree {
    pub(super) extents: Vec<Extent>,
    pub(super) nodes: Vec<Block>,
}

impl Mover {
    /// Reads an extent tree.
    pub(super) fn tree(&self, root: &[u8]) -> Result<ExtentTree> {
        let mut tree = ExtentTree::default();
        let depth = ExtentNode::parse(root, None)?.depth();
        self.add_node(root, depth, &mut tree)?;
        Ok(tree)
    }

    fn add_node(&self, bytes: &[u8], depth: u16, tree: &mut ExtentTree) -> Result<()> {
        let node = ExtentNode::parse(bytes, Some(depth))?;
        for at in 0..node.len() {
            if depth == 0 {
                tree.extents.push(node.extent(at));
            } else {
                let leaf = node.index(at).leaf;
                tree.nodes.push(leaf);
                self.add_node(&self.read(leaf)?, depth - 1, tree)?;
            }
        }
        Ok(())
    }

    /// Returns the device block of a file block. Returns `None` for a hole.
    pub(super) fn place(&self, inode: &Inode, number: u32) -> Result<Option<Block>> {
        if inode.has_flag(flags::EXTENTS) {
            let tree = self.tree(&inode.i_block()[..])?;
            let holds = |e: &&Extent| (u64::from(e.block.0)..e.end()).contains(&u64::from(number));
            let found = tree.extents.iter().find(holds);
            return Ok(found.map(|e| e.start.plus(u64::from(number - e.block.0))));
        }
        let number = crate::format::address::FileBlock(number);
        let Some(path) = indirect::IndirectPath::to(number, self.block_size() as u32) else {
            return Ok(None);
        };
        let mut bytes = inode.i_block().to_vec();
        let mut found = None;
        for (step, index) in path.indexes().iter().enumerate() {
            if step > 0 {
                let Some(block) = found else { return Ok(None) };
                bytes = self.read(block)?;
            }
            found = indirect::pointer(&bytes, *index);
        }
        Ok(found)
    }

    /// Returns the number of tree blocks of a file; 0 without an extent tree.
    pub(super) fn tree_blocks(&self, inode: &Inode) -> Result<u64> {
        if !has_map(inode) || !inode.has_flag(flags::EXTENTS) {
            return Ok(0);
        }
        Ok(self.tree(&inode.i_block()[..])?.nodes.len() as u64)
    }

    /// Returns the number of clusters that moving a file past the new end takes at most; 0 if it does not move.
    pub(super) fn clusters_to_move(&self, inode: &Inode) -> Result<u64> {
        let all = self.clusters_of(inode.blocks_512(self.params.geometry.block_size()));
        if !inode.has_flag(flags::EXTENTS) {
            return Ok(all);
        }
        let tree = self.tree(&inode.i_block()[..])?;
        let (end, cluster) = (self.end(), u64::from(self.params.geometry.cluster_blocks()));
        let past = tree.extents.iter().map(|extent| {
            let last = extent.start.0 + u64::from(extent.len);
            last.saturating_sub(end.max(extent.start.0)).div_ceil(cluster)
        });
        let past: u64 = past.sum();
        let has_past_node = tree.nodes.iter().any(|node| node.0 >= end);
        if past == 0 && !has_past_node { Ok(0) } else { Ok(past + tree.nodes.len() as u64 + 1) }
    }

    /// Returns the clusters of a file that uses this number of 512-byte units.
    pub(super) fn clusters_of(&self, units: u64) -> u64 {
        let geometry = &self.params.geometry;
        units.div_ceil(u64::from(geometry.block_size() / 512 * geometry.cluster_blocks()))
    }

    /// Moves the blocks of a file past the new end, and changes its inode. With `how.all`, moves all blocks and
    /// rewrites the map blocks.
    pub(super) fn move_file(&mut self, inode: &mut Inode, how: &How<'_>) -> Result<Moved> {
        if inode.has_flag(flags::EXTENTS) {
            self.move_extents(inode, how)
        } else {
            self.move_pointers(inode, how)
        }
    }

    fn move_extents(&mut self, inode: &mut Inode, how: &How<'_>) -> Result<Moved> {
        let tree = self.tree(&inode.i_block()[..])?;
        let end = self.end();
        let is_past = |extent: &Extent| extent.start.0 + u64::from(extent.len) > end;
        let mut moved = Moved {
            any: how.all
                || tree.extents.iter().any(is_past)
                || tree.nodes.iter().any(|n| n.0 >= end),
            more: false,
        };
        if !moved.any {
            return Ok(moved);
        }
        let mut work = Work { last: None, from: Budget::of(self), extents: Vec::new() };
        for extent in tree.extents {
            let kept = if how.all { 0 } else { end.saturating_sub(extent.start.0) };
            let kept = kept.min(extent.len.into()) as u32;
            if kept > 0 {
                work.push(Extent { len: kept, ..extent });
            }
            let rest = part(&extent, kept..extent.len);
            if rest.len == 0 {
                continue;
            }
            let cluster = rest.start.0 >> self.params.geometry.cluster_blocks_log;
            let is_begun = work.last.is_some_and(|(last, _)| last == cluster);
            if !how.all && !is_begun && work.from.is_spent(self) {
                moved.more = true;
                work.push(rest);
            } else {
                self.move_extent(rest, how, &mut work)?;
            }
        }
        let seed = self.seed(how.ino, inode.generation());
        self.replace_tree(inode, &tree.nodes, &work.extents, seed)?;
        Ok(moved)
    }

    /// Rewrites the tree blocks of a file with the checksums of inode `ino`.
    pub(super) fn reseal_tree(&mut self, inode: &mut Inode, ino: u32) -> Result<()> {
        if !inode.has_flag(flags::EXTENTS) {
            return Ok(());
        }
        let tree = self.tree(&inode.i_block()[..])?;
        let seed = self.seed(ino, inode.generation());
        self.replace_tree(inode, &tree.nodes, &tree.extents, seed)
    }

    /// Replaces a tree with the blocks `nodes` by a new one.
    fn replace_tree(
        &mut self,
        inode: &mut Inode,
        nodes: &[Block],
        extents: &[Extent],
        seed: Option<u32>,
    ) -> Result<()> {
        nodes.iter().for_each(|node| self.give_up(*node, 1));
        let (root, after) = self.write_tree(extents, seed)?;
        inode.i_block_mut().copy_from_slice(&root);
        let geometry = &self.params.geometry;
        let units = u64::from(geometry.cluster_blocks()) * u64::from(geometry.block_size() / 512);
        let used = inode.blocks_512(geometry.block_size());
        let used = used + after * units - nodes.len() as u64 * units;
        inode.set_blocks_512(used, geometry.block_size());
        Ok(())
    }

    /// Moves an extent in as many pieces as necessary. Blocks of one cluster stay together.
    fn move_extent(&mut self, extent: Extent, how: &How<'_>, work: &mut Work) -> Result<()> {
        let cluster = u64::from(self.params.geometry.cluster_blocks());
        let mut done = 0;
        while done < extent.len {
            let old = extent.start.0 + u64::from(done);
            let within = old % cluster;
            let left = u64::from(extent.len - done);
            let (new, count) = match work.last.filter(|(last, _)| *last == old / cluster) {
                Some((_, new)) => (new * cluster + within, left.min(cluster - within)),
                None => {
                    let taken = self.take((within + left).div_ceil(cluster))?;
                    let count = left.min((taken.end - taken.start) * cluster - within);
                    self.give_up(Block(old), count);
                    (taken.start * cluster + within, count)
                }
            };
            let piece = Extent { start: Block(new), ..part(&extent, done..done + count as u32) };
            if !piece.unwritten {
                self.copy_blocks(Block(old), &piece, how)?;
            }
            work.last = Some(((old + count - 1) / cluster, (new + count - 1) / cluster));
            work.push(piece);
            done += count as u32;
        }
        Ok(())
    }

    fn copy_blocks(&self, old: Block, piece: &Extent, how: &How<'_>) -> Result<()> {
        let Some(change) = how.change else {
            let copied = how.zeros_from.saturating_sub(piece.block.0).min(piece.len);
            if copied > 0 {
                self.copy(old, piece.start, copied.into())?;
            }
            if copied < piece.len {
                self.clear(piece.start.plus(copied.into()), (piece.len - copied).into())?;
            }
            return Ok(());
        };
        for nth in 0..piece.len {
            let to = piece.start.plus(nth.into());
            let mut bytes = self.read(old.plus(nth.into()))?;
            change(piece.block.0 + nth, to, &mut bytes);
            self.write_ahead(to, &bytes)?;
        }
        Ok(())
    }

    /// Writes a tree with these extents to free blocks. Returns its root and its number of blocks.
    fn write_tree(
        &mut self,
        extents: &[Extent],
        seed: Option<u32>,
    ) -> Result<([u8; I_BLOCK_SIZE], u64)> {
        let mut level: Vec<(u32, [u8; ENTRY_SIZE])> =
            extents.iter().map(|extent| (extent.block.0, extent.encode())).collect();
        let (mut depth, mut count) = (0, 0);
        let in_root = usize::from(capacity(I_BLOCK_SIZE));
        let in_block = capacity(self.block_size());
        while level.len() > in_root {
            let mut above = Vec::new();
            for entries in level.chunks(in_block.into()) {
                let block = self.take_block()?;
                let mut bytes = vec![0; self.block_size()];
                fill_node(&mut bytes, entries, in_block, depth);
                if let Some(seed) = seed {
                    extent::seal(&mut bytes, seed);
                }
                self.write_ahead(block, &bytes)?;
                let first = crate::format::address::FileBlock(entries[0].0);
                above.push((first.0, IndexEntry { block: first, leaf: block }.encode()));
                count += 1;
            }
            level = above;
            depth += 1;
        }
        let mut root = [0; I_BLOCK_SIZE];
        fill_node(&mut root, &level, in_root as u16, depth);
        Ok((root, count))
    }

    fn move_pointers(&mut self, inode: &mut Inode, how: &How<'_>) -> Result<Moved> {
        let mut budget = Budget::of(self);
        let mut moved = Moved::default();
        let mut root = inode.i_block().to_vec();
        let mut first = 0;
        for at in 0..DIRECT_COUNT as usize + 3 {
            let levels = (at + 1).saturating_sub(DIRECT_COUNT as usize) as u32;
            let changed = self.move_pointer(&mut root, at, (levels, first), how, &mut budget)?;
            moved.any |= changed.any;
            moved.more |= changed.more;
            first += u64::from(self.block_size() as u32 / 4).pow(levels);
        }
        inode.i_block_mut().copy_from_slice(&root);
        Ok(moved)
    }

    /// Moves the blocks below a pointer. The pointer is entry `at` of `pointers`, `levels` levels above the data, and
    /// maps the file from block `first` on.
    fn move_pointer(
        &mut self,
        pointers: &mut [u8],
        at: usize,
        (levels, first): (u32, u64),
        how: &How<'_>,
        budget: &mut Budget,
    ) -> Result<Moved> {
        let Some(old) = indirect::pointer(pointers, at as u16) else { return Ok(Moved::default()) };
        let must = old.0 >= self.end() || how.all;
        if must && !how.all && budget.is_spent(self) {
            return Ok(Moved { any: false, more: true });
        }
        let mut moved = Moved { any: must, more: false };
        let mut below = Vec::new();
        if levels > 0 {
            below = self.read(old)?;
            let per_block = self.block_size() / 4;
            let span = (per_block as u64).pow(levels - 1);
            for index in 0..per_block {
                let part = (levels - 1, first + index as u64 * span);
                let one = self.move_pointer(&mut below, index, part, how, budget)?;
                moved.any |= one.any;
                moved.more |= one.more;
            }
        }
        if !moved.any {
            return Ok(moved);
        }
        let new = self.take_block()?;
        match how.change.filter(|_| levels == 0) {
            _ if levels > 0 => self.write_ahead(new, &below)?,
            Some(change) => {
                let mut bytes = self.read(old)?;
                change(first as u32, new, &mut bytes);
                self.write_ahead(new, &bytes)?;
            }
            None if first >= u64::from(how.zeros_from) => self.clear(new, 1)?,
            None => self.copy(old, new, 1)?,
        }
        self.give_up(old, 1);
        pointers[at * 4..at * 4 + 4].copy_from_slice(&(new.0 as u32).to_le_bytes());
        Ok(moved)
    }
}

/// Returns a part of an extent.
fn part(extent: &Extent, range: Range<u32>) -> Extent {
    Extent {
        block: crate::format::address::FileBlock(extent.block.0 + range.start),
        len: range.end - range.start,
        start: extent.start.plus(range.start.into()),
        unwritten: extent.unwritten,
    }
}

fn fill_node(bytes: &mut [u8], entries: &[(u32, [u8; ENTRY_SIZE])], room: u16, depth: u16) {
    extent::write_header(bytes, entries.len() as u16, room, depth);
    for (at, (_, entry)) in entries.iter().enumerate() {
        bytes[extent::entry_range(at)].copy_from_slice(entry);
    }
}

/// New extents of a file that is being moved.
struct Work {
    /// The last cluster that was moved, and its new position.
    last: Option<(u64, u64)>,
    from: Budget,
    extents: Vec<Extent>,
}

impl Work {
    /// Adds an extent, and merges it with the one before if they are adjacent.
    fn push(&mut self, extent: Extent) {
        if let Some(last) = self.extents.last_mut() {
            let max = if last.unwritten { UNWRITTEN_LEN_MAX } else { WRITTEN_LEN_MAX };
            let adjoins = last.unwritten == extent.unwritten
                && last.end() == u64::from(extent.block.0)
                && last.start.plus(last.len.into()) == extent.start
                && last.len + extent.len <= max;
            if adjoins {
                last.len += extent.len;
                return;
            }
        }
        self.extents.push(extent);
    }
}

/// Limits how much of a file is moved in a step, by the room in the journal.
struct Budget {
    before: usize,
    has_begun: bool,
}

impl Budget {
    fn of(mover: &Mover) -> Self {
        Self { before: mover.pending(), has_begun: false }
    }

    /// Returns whether the step is full. The first call returns `false`, so that every step makes progress.
    fn is_spent(&mut self, mover: &Mover) -> bool {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let is_much = mover.pending() > self.before + 2 * GROUPS_AT_ONCE;
        !is_first && (is_much || !mover.has_room(16))
    }
}
