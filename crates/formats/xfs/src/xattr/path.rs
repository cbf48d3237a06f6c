//! Paths through a tree of attributes, from the root at logical block 0 down to a leaf.

use engine::Tag;
use smallvec::SmallVec;
use vfs::Result;

use crate::format::address::{Block, FileBlock};
use crate::format::attr::{self, AttrLayout, BlockType, node};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::{self, Place};
use crate::op::source::Source;

/// A block of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathBlock {
    /// Its logical block.
    pub(super) at: u32,
    /// Its device block.
    pub(super) place: Block,
    /// Index of the entry followed. 0 in a leaf.
    pub(super) index: usize,
}

/// The blocks from the root to a leaf, at least one.
pub(super) type AttrPath = SmallVec<[PathBlock; node::LEVEL_MAX as usize + 1]>;

/// Returns the tag of a block of attributes.
pub(super) fn tag(handle: &Handle, at: u32) -> Tag {
    BlockKind::AttrLeaf.of_inode(handle.ino(), at)
}

/// Returns the location of logical block `at`.
pub(super) fn locate(source: &mut impl Source, handle: &Handle, at: u32) -> Result<Block> {
    let run = map::run_at(source, handle, Fork::Attr, FileBlock(at.into()))?;
    let Place::Written(block) = run.place else {
        let problem = format!("logical block {at}, which is in use, is not mapped");
        return Err(handle.corrupt("attribute fork", problem));
    };
    Ok(source.geometry().device_block(block))
}

/// The relevant contents of a block on the path.
enum Seen {
    Leaf,
    Node { level: u16, index: usize, child: Option<u32> },
}

/// Returns the path to the first leaf that can have entries with this hash, or to the last leaf.
pub(super) fn descend(source: &mut impl Source, handle: &Handle, hash: u32) -> Result<AttrPath> {
    let mut path = AttrPath::new();
    go_down(source, handle, &mut path, DescentStart { at: 0, level: None }, hash)?;
    Ok(path)
}

/// Start of a descent: a block, and its expected level (0 for a leaf). `None` for the root, which may have any level.
struct DescentStart {
    at: u32,
    level: Option<u16>,
}

fn go_down(
    source: &mut impl Source,
    handle: &Handle,
    path: &mut AttrPath,
    mut target: DescentStart,
    hash: u32,
) -> Result<()> {
    let layout = AttrLayout::new(&source.geometry());
    loop {
        let DescentStart { at, level: expected } = target;
        let place = locate(source, handle, at)?;
        let seen = source.with(place, tag(handle, at), |data| look(layout, data, hash))?;
        let (level, index) = match seen {
            Seen::Leaf => (0, 0),
            Seen::Node { level, index, .. } => (level, index),
        };
        // The level decreases with every step, so the loop ends.
        if expected.is_some_and(|expected| expected != level) {
            let problem = format!("logical block {at} of the tree has another level");
            let damage = engine::Corruption::new("attribute fork", problem);
            let damage = damage.mismatch(expected.unwrap_or_default(), level);
            return Err(damage.of_inode(handle.ino().0).at_block(place.0).into());
        }
        path.push(PathBlock { at, place, index });
        match seen {
            Seen::Leaf => return Ok(()),
            Seen::Node { child: Some(child), .. } => {
                target = DescentStart { at: child, level: Some(level - 1) };
            }
            Seen::Node { child: None, .. } => {
                return Err(handle.corrupt("attribute node", "no entries"));
            }
        }
    }
}

fn look(layout: AttrLayout, data: &[u8], hash: u32) -> Seen {
    if layout.block_type(data) != Some(BlockType::Node) {
        return Seen::Leaf;
    }
    let index = node::find(layout, data, hash);
    let child = node::child(layout, data, index).map(|child| child.block);
    // A level below 1 was refused when the block was read.
    Seen::Node { level: node::level(layout, data).max(1), index, child }
}

/// A walk from leaf to leaf that detects cycles in a damaged tree.
#[derive(Debug)]
pub(super) struct LeafWalk {
    pub(super) path: AttrPath,
    /// A leaf visited before, which must not be visited again; replaced each time the number of steps has doubled. Each
    /// leaf must name its predecessor, so a walk that visits one leaf twice is cyclic, and meets this one, too.
    landmark: u32,
    steps: u64,
}

impl LeafWalk {
    pub(super) fn new(path: AttrPath) -> Self {
        let landmark = path.last().map_or(0, |step| step.at);
        Self { path, landmark, steps: 0 }
    }

    /// Returns the leaf at the end of the path.
    pub(super) fn leaf(&self) -> PathBlock {
        self.path[self.path.len() - 1]
    }

    /// Advances to the next leaf. Returns false without a step if there is none.
    pub(super) fn advance(&mut self, source: &mut impl Source, handle: &Handle) -> Result<bool> {
        let layout = AttrLayout::new(&source.geometry());
        let previous = self.leaf().at;
        for depth in (0..self.path.len() - 1).rev() {
            let step = self.path[depth];
            let next = step.index + 1;
            let child = source.with(step.place, tag(handle, step.at), |data| {
                node::child(layout, data, next)
                    .map(|child| (child.block, node::level(layout, data).max(1)))
            })?;
            let Some((at, level)) = child else { continue };
            self.path[depth].index = next;
            self.path.truncate(depth + 1);
            let target = DescentStart { at, level: Some(level - 1) };
            go_down(source, handle, &mut self.path, target, 0)?;
            self.check_step(source, handle, previous)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Checks that the new leaf names `previous` as its predecessor, and is not the landmark.
    fn check_step(
        &mut self,
        source: &mut impl Source,
        handle: &Handle,
        previous: u32,
    ) -> Result<()> {
        let leaf = self.leaf();
        let back = source.with(leaf.place, tag(handle, leaf.at), attr::back)?;
        if back != previous || leaf.at == self.landmark {
            let problem = format!("leaf {} does not follow leaf {previous}", leaf.at);
            let damage = engine::Corruption::new("attribute fork", problem);
            let damage = damage.mismatch(previous, back);
            return Err(damage.of_inode(handle.ino().0).at_block(leaf.place.0).into());
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.landmark = leaf.at;
        }
        Ok(())
    }
}
