//! Where a file's blocks are: extent trees and the block maps of ext2 and ext3.

use vfs::{Corruption, Result};

use crate::Ext4;
use crate::format::address::{Block, FileBlock};
use crate::format::extent::Node;
use crate::format::indirect::{self, Path};
use crate::format::inode::flags;
use crate::kind::Kind;
use crate::read::inode::Handle;

/// One past the last block a file can have.
pub(crate) const FILE_BLOCKS_MAX: u64 = 1 << 32;

/// Where a run of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// From this block on.
    Written(Block),
    /// From this block on, but never written.
    Unwritten(Block),
    /// Not allocated.
    Hole,
}

/// Some blocks of a file that lie together: never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) place: Place,
    /// Number of blocks, at least 1.
    pub(crate) len: u64,
}

/// The run that starts at `block`. Neighbouring runs may continue it.
///
/// The inode's contents must not be inline.
pub(crate) fn run_at(fs: &Ext4, handle: &Handle, block: FileBlock) -> Result<Run> {
    let run = if handle.has_flag(flags::EXTENTS) {
        run_in_extents(fs, handle, block)?
    } else {
        run_in_map(fs, handle, block)?
    };
    if let Place::Written(start) | Place::Unwritten(start) = run.place {
        check(fs, handle, start, run.len)?;
    }
    Ok(run)
}

fn check(fs: &Ext4, handle: &Handle, start: Block, len: u64) -> Result<()> {
    let geometry = fs.volume.geometry;
    if geometry.contains(start, len) {
        return Ok(());
    }
    let range = format!("{} to {}", geometry.first_data_block + 1, geometry.blocks_count);
    Err(Corruption::new("block map", "blocks outside the file system")
        .of_inode(handle.ino().0)
        .mismatch(range, format_args!("{start} to {}", start.plus(len)))
        .into())
}

/// Walks down an extent tree. Each step goes one level down, so a loop of blocks ends. A node must
/// lie in the range that its parent gives it, so that no two entries can share one: the work of
/// going through a file is bounded by the nodes that there are.
fn run_in_extents(fs: &Ext4, handle: &Handle, block: FileBlock) -> Result<Run> {
    let at_inode = |c: Corruption| c.of_inode(handle.ino().0);
    let root = Node::parse(handle.inode.i_block(), None).map_err(at_inode)?;
    let mut step = step_in_extents(&root, block, FILE_BLOCKS_MAX);
    for depth in (0..root.depth()).rev() {
        let Step::Down { leaf, start, end } = step else { break };
        check(fs, handle, leaf, 1)?;
        let bytes = fs.block(leaf, Kind::ExtentNode.of(handle.owner))?;
        let node = Node::trusted(&bytes, depth)
            .and_then(|node| node.check_range(start, end).map(|()| node))
            .map_err(|c| at_inode(c.at_block(leaf.0)))?;
        step = step_in_extents(&node, block, end);
    }
    match step {
        Step::Found(run) => Ok(run),
        Step::Down { .. } => Err(handle.corrupt("extent tree node", "it is deeper than its root")),
    }
}

enum Step {
    Found(Run),
    /// Into the node at `leaf`, which holds what lies from `start` to before `end`.
    Down {
        leaf: Block,
        start: FileBlock,
        end: u64,
    },
}

/// Looks for `block` in a node that holds what lies before `end`.
fn step_in_extents(node: &Node<'_>, block: FileBlock, end: u64) -> Step {
    let at = node.position(block);
    let next = at.map_or(0, |at| at + 1);
    let end = node.first_block(next).map_or(end, |first| u64::from(first.0).min(end));
    let wanted = u64::from(block.0);
    let hole = Step::Found(Run { place: Place::Hole, len: end.saturating_sub(wanted).max(1) });
    let Some(at) = at else { return hole };
    if node.depth() > 0 {
        let entry = node.index(at);
        return Step::Down { leaf: entry.leaf, start: entry.block, end };
    }
    let extent = node.extent(at);
    if wanted >= extent.end() {
        return hole;
    }
    let start = extent.start.plus(wanted - u64::from(extent.block.0));
    let place = if extent.unwritten { Place::Unwritten(start) } else { Place::Written(start) };
    Step::Found(Run { place, len: extent.end() - wanted })
}

/// Walks down a block map.
fn run_in_map(fs: &Ext4, handle: &Handle, block: FileBlock) -> Result<Run> {
    let block_size = fs.volume.geometry.block_size();
    let Some(path) = Path::to(block, block_size) else {
        let len = FILE_BLOCKS_MAX - u64::from(block.0);
        return Ok(Run { place: Place::Hole, len });
    };
    let root = &handle.inode.i_block()[..];
    let (&first, below) = path.indexes().split_first().unwrap_or((&0, &[]));
    if below.is_empty() {
        return Ok(run_of_pointers(&root[..indirect::DIRECT_COUNT as usize * 4], first));
    }
    let mut pointer = indirect::pointer(root, first);
    for (step, &index) in below.iter().enumerate() {
        let Some(block) = pointer else {
            let len = path.shared_after(step, block_size);
            return Ok(Run { place: Place::Hole, len });
        };
        check(fs, handle, block, 1)?;
        let bytes = fs.block(block, Kind::Indirect.of(handle.owner))?;
        if step + 1 == below.len() {
            return Ok(run_of_pointers(&bytes, index));
        }
        pointer = indirect::pointer(&bytes, index);
    }
    Err(handle.corrupt("block map", "a way that does not end"))
}

/// The run that starts at pointer `index`, as far as the pointers beside it continue it.
fn run_of_pointers(pointers: &[u8], index: u16) -> Run {
    let first = indirect::pointer(pointers, index);
    let count = (pointers.len() / 4) as u16;
    let continued = |&at: &u16| {
        let expected = first.map(|block| block.plus(u64::from(at - index)));
        indirect::pointer(pointers, at) == expected
    };
    let len = 1 + (index + 1..count).take_while(continued).count() as u64;
    Run { place: first.map_or(Place::Hole, Place::Written), len }
}
