//! Ways through a tree of attributes, from the root at logical block 0 down to a leaf.

use smallvec::SmallVec;
use transaction::Tag;
use vfs::Result;

use crate::format::address::{Block, FileBlock};
use crate::format::attr::{self, BlockType, Layout, node};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::Kind;
use crate::map::{self, Place};
use crate::op::source::Source;

/// A block on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathBlock {
    /// Its logical block.
    pub(super) at: u32,
    /// Its block of the device.
    pub(super) place: Block,
    /// Which of its entries the way goes on through. 0 in a leaf.
    pub(super) index: usize,
}

/// The blocks from the root to a leaf, at least one.
pub(super) type AttrPath = SmallVec<[PathBlock; node::LEVEL_MAX as usize + 1]>;

/// The tag of a block of attributes.
pub(super) fn tag(handle: &Handle, at: u32) -> Tag {
    Kind::AttrLeaf.of_inode(handle.ino(), at)
}

/// Where logical block `at` is.
pub(super) fn locate(source: &mut impl Source, handle: &Handle, at: u32) -> Result<Block> {
    let run = map::run_at(source, handle, Fork::Attr, FileBlock(at.into()))?;
    let Place::Written(block) = run.place else {
        let problem = format!("logical block {at}, which is in use, has no place");
        return Err(handle.corrupt("attribute fork", problem));
    };
    Ok(source.geometry().device_block(block))
}

/// What a block on the way says.
enum Seen {
    Leaf,
    Node { level: u16, index: usize, child: Option<u32> },
}

/// The way to the first leaf that can have entries of this hash, or to the last one.
pub(super) fn descend(source: &mut impl Source, handle: &Handle, hash: u32) -> Result<AttrPath> {
    let mut path = AttrPath::new();
    go_down(source, handle, &mut path, Target { at: 0, level: None }, hash)?;
    Ok(path)
}

/// Where to go down from: a block, and the level it must have (0 for a leaf). The root may have any.
struct Target {
    at: u32,
    level: Option<u16>,
}

fn go_down(
    source: &mut impl Source,
    handle: &Handle,
    path: &mut AttrPath,
    mut target: Target,
    hash: u32,
) -> Result<()> {
    let layout = Layout::new(&source.geometry());
    loop {
        let Target { at, level: expected } = target;
        let place = locate(source, handle, at)?;
        let seen = source.with(place, tag(handle, at), |data| look(layout, data, hash))?;
        let (level, index) = match seen {
            Seen::Leaf => (0, 0),
            Seen::Node { level, index, .. } => (level, index),
        };
        // Levels fall by one with every step, so the loop ends.
        if expected.is_some_and(|expected| expected != level) {
            let problem = format!("logical block {at} of the tree has another level");
            let damage = transaction::Corruption::new("attribute fork", problem);
            let damage = damage.mismatch(expected.unwrap_or_default(), level);
            return Err(damage.of_inode(handle.ino().0).at_block(place.0).into());
        }
        path.push(PathBlock { at, place, index });
        match seen {
            Seen::Leaf => return Ok(()),
            Seen::Node { child: Some(child), .. } => {
                target = Target { at: child, level: Some(level - 1) };
            }
            Seen::Node { child: None, .. } => {
                return Err(handle.corrupt("attribute node", "no entries"));
            }
        }
    }
}

fn look(layout: Layout, data: &[u8], hash: u32) -> Seen {
    if layout.block_type(data) != Some(BlockType::Node) {
        return Seen::Leaf;
    }
    let index = node::find(layout, data, hash);
    let child = node::child(layout, data, index).map(|child| child.block);
    // A level below 1 was refused when the block was read.
    Seen::Node { level: node::level(layout, data).max(1), index, child }
}

/// Goes from leaf to leaf, and notices when a damaged tree leads to a leaf again.
#[derive(Debug)]
pub(super) struct Walk {
    pub(super) path: AttrPath,
    /// A leaf that was come to before, which must not be come to again: a later one each time the
    /// number of steps has doubled. Because each leaf names the one before it, a way that comes to
    /// one leaf twice goes round for ever and comes to this one, too.
    landmark: u32,
    steps: u64,
}

impl Walk {
    pub(super) fn new(path: AttrPath) -> Self {
        let landmark = path.last().map_or(0, |step| step.at);
        Self { path, landmark, steps: 0 }
    }

    /// The leaf that the way leads to.
    pub(super) fn leaf(&self) -> PathBlock {
        self.path[self.path.len() - 1]
    }

    /// Goes on to the next leaf. False, and no step, if there is none.
    pub(super) fn advance(&mut self, source: &mut impl Source, handle: &Handle) -> Result<bool> {
        let layout = Layout::new(&source.geometry());
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
            let target = Target { at, level: Some(level - 1) };
            go_down(source, handle, &mut self.path, target, 0)?;
            self.check_step(source, handle, previous)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Checks that the leaf now come to says that it follows `previous`, and is new.
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
            let damage = transaction::Corruption::new("attribute fork", problem);
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
