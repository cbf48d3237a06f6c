//! Walks an inode's whole map: extents or pointers.

use engine::Corruption;
use vfs::check::{Code, Finding};

use super::codes::{EXTENT_CHECKSUM, EXTENT_NODE, EXTENT_PLACE, EXTENT_START, INDIRECT_PLACE};
use super::context::{Context, InodeUnderCheck};
use crate::format::address::{Block, FileBlock};
use crate::format::extent::{self, ENTRY_SIZE, ExtentNode};
use crate::format::indirect;
use crate::format::inode::{I_BLOCK_SIZE, flags};

/// A contiguous run of a file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileExtent {
    pub(super) first: u32,
    pub(super) start: Block,
    pub(super) len: u32,
    pub(super) unwritten: bool,
}

/// Visitor of a map.
pub(super) trait MapVisitor {
    /// Receives a run of the file's blocks, in file order.
    fn run(&mut self, run: FileExtent);

    /// Receives a map block. Returns whether to walk it.
    fn node(&mut self, block: Block) -> bool;

    /// Receives a fault of the map, due to which part of it was not walked.
    fn fault(&mut self, _context: &Context<'_>, _finding: Finding) {}
}

/// Walks the map in an inode, which contains pointers or extents depending on the flags.
///
/// Each node is within the range of its parent's entry, and each level is one lower, so the walk ends.
pub(super) fn walk(context: &Context<'_>, subject: &InodeUnderCheck, blocks: &mut dyn MapVisitor) {
    let mut walk = MapWalk { context, subject, blocks, pending: None, next: 0 };
    let root = subject.inode.i_block();
    if subject.has(flags::EXTENTS) {
        match parse(root, None) {
            Ok(node) => walk.extents(&node, 1 << 32),
            Err(damage) => walk.damage(EXTENT_NODE, &damage, None),
        }
        return;
    }
    let direct = indirect::DIRECT_COUNT as usize * 4;
    walk.pointers(&root[..direct], 0);
    for level in 1..=indirect::LEVELS_MAX {
        let at = direct + (level - 1) * 4;
        walk.pointers(&root[at..at + 4], level);
    }
    walk.deliver();
}

/// Parses a node. Also checks that its capacity is not too small, which other programs do not accept.
fn parse(bytes: &[u8], depth: Option<u16>) -> Result<ExtentNode<'_>, Corruption> {
    let node = ExtentNode::parse(bytes, depth)?;
    let most = (bytes.len() - ENTRY_SIZE) / ENTRY_SIZE;
    if node.room() + 2 < most {
        let damage = Corruption::new("extent tree node", "wrong maximum number of entries");
        return Err(damage.mismatch(extent::capacity(bytes.len()), node.room()));
    }
    Ok(node)
}

struct MapWalk<'w, 'c> {
    context: &'w Context<'c>,
    subject: &'w InodeUnderCheck,
    blocks: &'w mut dyn MapVisitor,
    /// For pointers: the current contiguous run.
    pending: Option<FileExtent>,
    /// For pointers: file block of the next pointer.
    next: u64,
}

impl MapWalk<'_, '_> {
    fn finding(&self, code: &'static Code) -> Finding {
        Finding::new(code).of_inode(self.subject.ino.into())
    }

    fn damage(&mut self, code: &'static Code, damage: &Corruption, block: Option<Block>) {
        let mut finding = Finding::of_damage(code, damage).of_inode(self.subject.ino.into());
        finding.place.block = block.map(|block| block.0).or(finding.place.block);
        self.blocks.fault(self.context, finding);
    }

    /// Checks that blocks are in the file system.
    fn is_inside(&mut self, code: &'static Code, start: Block, len: u32) -> bool {
        let geometry = self.context.geometry();
        let is_inside = geometry.contains(start, len.into());
        if !is_inside {
            let expected = format!("below {}", geometry.blocks_count);
            let finding = self.finding(code).mismatch(expected, format!("{len} from {start}"));
            self.blocks.fault(self.context, finding);
        }
        is_inside
    }

    fn extents(&mut self, node: &ExtentNode<'_>, end: u64) {
        for at in 0..node.len() {
            if node.depth() == 0 {
                let extent = node.extent(at);
                if self.is_inside(EXTENT_PLACE, extent.start, extent.len) {
                    let first = extent.block.0;
                    let (start, len, unwritten) = (extent.start, extent.len, extent.unwritten);
                    self.blocks.run(FileExtent { first, start, len, unwritten });
                }
                continue;
            }
            let entry = node.index(at);
            let end = node.first_block(at + 1).map_or(end, |next| next.0.into());
            if self.is_inside(EXTENT_PLACE, entry.leaf, 1) && self.blocks.node(entry.leaf) {
                self.child(entry.leaf, entry.block, end, node.depth() - 1);
            }
        }
    }

    /// Walks a child node in a block, which maps the range `start..end`.
    fn child(&mut self, block: Block, start: FileBlock, end: u64, depth: u16) {
        let Some(bytes) = self.context.block(block) else { return };
        let node = match parse(&bytes, Some(depth)) {
            Ok(node) => node,
            Err(damage) => return self.damage(EXTENT_NODE, &damage, Some(block)),
        };
        if let Err(damage) = extent::verify(&bytes, self.subject.seed) {
            self.damage(EXTENT_CHECKSUM, &damage, Some(block));
        }
        if node.is_empty() {
            let damage = Corruption::new("extent tree node", "it has no entries");
            return self.damage(EXTENT_NODE, &damage, Some(block));
        }
        if let Err(damage) = node.check_range(start, end) {
            return self.damage(EXTENT_NODE, &damage, Some(block));
        }
        if let Some(first) = node.first_block(0).filter(|first| *first != start) {
            let finding = self.finding(EXTENT_START).at_block(block.0).mismatch(start, first);
            self.blocks.fault(self.context, finding);
        }
        self.extents(&node, end);
    }

    /// Visits pointers to data or, with more levels, to pointer blocks.
    fn pointers(&mut self, pointers: &[u8], levels: usize) {
        let per_block = self.context.block_size() as u64 / 4;
        let span = per_block.pow(levels as u32);
        for index in 0..(pointers.len() / 4) as u16 {
            let first = self.next;
            self.next += span;
            let Some(block) = indirect::pointer(pointers, index) else { continue };
            let Ok(first) = u32::try_from(first) else { return };
            if !self.is_inside(INDIRECT_PLACE, block, 1) {
                continue;
            }
            if levels == 0 {
                self.point(first, block);
                continue;
            }
            self.deliver();
            if self.blocks.node(block)
                && let Some(bytes) = self.context.block(block)
            {
                self.next = first.into();
                self.pointers(&bytes, levels - 1);
                self.next = u64::from(first) + span;
            }
        }
    }

    /// Adds the block of a pointer to the current run, or starts a new one.
    fn point(&mut self, first: u32, start: Block) {
        if let Some(run) = &mut self.pending
            && run.first + run.len == first
            && run.start.plus(run.len.into()) == start
        {
            run.len += 1;
            return;
        }
        self.deliver();
        self.pending = Some(FileExtent { first, start, len: 1, unwritten: false });
    }

    fn deliver(&mut self) {
        if let Some(run) = self.pending.take() {
            self.blocks.run(run);
        }
    }
}

const _: () =
    assert!(indirect::DIRECT_COUNT as usize * 4 + indirect::LEVELS_MAX * 4 == I_BLOCK_SIZE);
