//! Finding extents in the tree of a fork.
//!
//! A search keeps the bounds set by the nodes above: the extents of a leaf must be within them. So no logical block is
//! found in two places of a tree, and a walk through a fork from run to run ends.

use vfs::{Corruption, Result};

use super::{Extent, list};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::btree::{Area, LEVELS_MAX, TreeShape};
use crate::format::bytes::be64;
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::op::source::Source;

/// A block to descend to, and the bounds set by its parent.
struct Subtree {
    block: FsBlock,
    level: u16,
    /// The first logical block below it.
    low: FileBlock,
    /// Upper bound of the logical blocks below it (exclusive).
    high: FileBlock,
}

/// The result of a lookup: the last extent that starts at or before a logical block, and the start of the next one (or
/// a lower bound of it).
type Answer = (Option<Extent>, FileBlock);

/// A step of a search.
enum Descent {
    Down(Subtree),
    Found(Answer),
}

/// Looks a logical block up.
pub(super) fn find(
    source: &mut impl Source,
    handle: &Handle,
    fork: Fork,
    at: FileBlock,
) -> Result<Answer> {
    let geometry = source.geometry();
    let mut step = from_root(handle, fork, at).map_err(|c| c.of_inode(handle.ino().0))?;
    loop {
        let child = match step {
            Descent::Found(found) => return Ok(found),
            Descent::Down(child) => child,
        };
        if !geometry.contains(child.block, 1) {
            let damage = Corruption::new("bmbt", "a pointer outside the file system");
            return Err(damage.of_inode(handle.ino().0).mismatch("a block", child.block).into());
        }
        let block = geometry.device_block(child.block);
        let tag = BlockKind::Bmbt.of_inode(handle.ino(), 0);
        let next = source.with(block, tag, |bytes| from_block(&geometry, &child, bytes, at))?;
        step = next.map_err(|c| c.at_block(block.0).of_inode(handle.ino().0))?;
    }
}

/// Descends from the root in the inode.
fn from_root(handle: &Handle, fork: Fork, at: FileBlock) -> Result<Descent, Corruption> {
    let fault = |problem| Corruption::new("bmbt root", problem);
    let bytes = handle.inode.fork(fork);
    let area = TreeShape::BMBT.root_area(bytes.len());
    if area.max == 0 {
        return Err(fault("the fork has no space for it"));
    }
    let level = area.level(bytes);
    if level == 0 || usize::from(level) >= LEVELS_MAX {
        return Err(fault("level").mismatch(format_args!("1 to {}", LEVELS_MAX - 1), level));
    }
    let whole = Subtree { block: FsBlock(0), level, low: FileBlock(0), high: FileBlock::END };
    in_node(&whole, &area, bytes, at)
}

/// Descends from a verified block.
fn from_block(
    geometry: &Geometry,
    place: &Subtree,
    bytes: &[u8],
    at: FileBlock,
) -> Result<Descent, Corruption> {
    let is_leaf = place.level == 0;
    let shape = TreeShape::BMBT;
    let area = if is_leaf { shape.leaf_area(geometry) } else { shape.node_area(geometry) };
    if area.level(bytes) != place.level {
        return Err(Corruption::new("bmbt", "level").mismatch(place.level, area.level(bytes)));
    }
    if is_leaf { in_leaf(place, &area, bytes, at) } else { in_node(place, &area, bytes, at) }
}

/// Returns the entries of a node or leaf: at least one.
fn entries<'b>(area: &Area, bytes: &'b [u8]) -> Result<&'b [u8], Corruption> {
    let count = area.count(bytes);
    if (1..=area.max).contains(&count) {
        return Ok(&bytes[area.entry_range(0, count)]);
    }
    let damage = Corruption::new("bmbt", "numrecs");
    Err(damage.mismatch(format_args!("1 to {}", area.max), count))
}

fn in_node(
    place: &Subtree,
    area: &Area,
    bytes: &[u8],
    at: FileBlock,
) -> Result<Descent, Corruption> {
    let keys = entries(area, bytes)?;
    let key = |index: usize| FileBlock(be64(keys, index * area.entry_size));
    let count = area.count(bytes);
    let (mut first, mut end) = (0, count);
    while first < end {
        let middle = first + (end - first) / 2;
        if key(middle) <= at { first = middle + 1 } else { end = middle }
    }
    // A block before the first key is in no child; the search in the first child finds that out.
    let index = first.saturating_sub(1);
    let low = key(index);
    let high = if index + 1 < count { key(index + 1) } else { place.high };
    if low < place.low || low >= high || high > place.high {
        return Err(out_of_bounds("keys out of order", place, low));
    }
    let block = FsBlock(area.pointer(bytes, index));
    Ok(Descent::Down(Subtree { block, level: place.level - 1, low, high }))
}

fn in_leaf(
    place: &Subtree,
    area: &Area,
    bytes: &[u8],
    at: FileBlock,
) -> Result<Descent, Corruption> {
    let records = entries(area, bytes)?;
    let index = list::count_to(records, at);
    let extent = index.checked_sub(1).and_then(|index| list::nth(records, index));
    let next = list::nth(records, index);
    let high = next.map_or(place.high, |next| next.offset);
    for (found, end) in [(extent, high), (next, place.high)] {
        if let Some(found) = found
            && (found.offset < place.low || found.end() > end)
        {
            return Err(out_of_bounds("extents out of order", place, found.offset));
        }
    }
    Ok(Descent::Found((extent, high)))
}

#[cold]
fn out_of_bounds(problem: &'static str, place: &Subtree, found: FileBlock) -> Corruption {
    Corruption::new("bmbt", problem)
        .mismatch(format_args!("{} to {}", place.low, place.high), found)
}
