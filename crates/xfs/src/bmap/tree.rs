//! Finding extents in the tree of a fork.
//!
//! The search keeps the bounds that the nodes above set: a leaf counts only if its extents lie within
//! them. So no block can be found in two places of a tree, and whoever goes through a fork from run to
//! run ends.

use vfs::{Corruption, Result};

use super::{Extent, list};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::bytes::{be16, be64};
use crate::format::extent::EXTENT_SIZE;
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::Kind;
use crate::source::Source;

/// Size of the header of a tree block: version 5 and version 4.
const HEADER_SIZES: (usize, usize) = (72, 24);
/// Size of the header of the root in the inode.
const ROOT_HEADER_SIZE: usize = 4;
/// Most levels a tree can have, the root included (`XFS_BM_MAXLEVELS` is no higher).
const LEVELS_MAX: u16 = 16;
/// Size of a key, and of a pointer.
const KEY_SIZE: usize = 8;

/// A block to go to, and what its parent says of it.
struct Child {
    block: FsBlock,
    level: u16,
    /// The first logical block below it.
    low: FileBlock,
    /// All below it ends here at the latest.
    high: FileBlock,
}

/// Keys and pointers of a node.
struct Node<'b> {
    level: u16,
    keys: &'b [u8],
    pointers: &'b [u8],
}

/// What a leaf says of a logical block.
pub(super) struct Found {
    /// The last extent that starts there or before.
    pub(super) extent: Option<Extent>,
    /// Where the next one starts, or a place before it up to which there is none.
    pub(super) next: FileBlock,
}

/// Looks a logical block up.
pub(super) fn find(
    source: &mut impl Source,
    handle: &Handle,
    fork: Fork,
    at: FileBlock,
) -> Result<Found> {
    let geometry = source.geometry();
    let root = root(handle, fork)?;
    let mut child = root.child(at, FileBlock(0), FileBlock::END);
    let mut found = None;
    while found.is_none() {
        let next = child.map_err(|c| c.of_inode(handle.ino().0))?;
        if !geometry.contains(next.block, 1) {
            let damage = Corruption::new("bmbt node", "a pointer out of the file system");
            return Err(damage.of_inode(handle.ino().0).mismatch("a block", next.block).into());
        }
        let block = geometry.device_block(next.block);
        let tag = Kind::Bmbt.of_inode(handle.ino(), 0);
        let locate = |c: Corruption| c.at_block(block.0).of_inode(handle.ino().0);
        (found, child) = source.with(block, tag, |bytes| {
            if next.level == 0 {
                let found = in_leaf(&geometry, &next, bytes, at).map_err(locate)?;
                return Ok::<_, vfs::Error>((Some(found), Ok(next)));
            }
            let node = Node::of_block(&geometry, next.level, bytes).map_err(locate)?;
            Ok((None, node.child(at, next.low, next.high).map_err(locate)))
        })??;
    }
    found.ok_or_else(|| handle.corrupt("bmbt", "it has no leaf"))
}

/// The root in the inode.
fn root(handle: &Handle, fork: Fork) -> Result<Node<'_>> {
    let fault = |problem| handle.corrupt("bmbt root", problem);
    let bytes = handle.inode.fork(fork);
    if bytes.len() < ROOT_HEADER_SIZE + 2 * KEY_SIZE {
        return Err(fault("the fork has no room for it"));
    }
    let (level, count) = (be16(bytes, 0), usize::from(be16(bytes, 2)));
    if level == 0 || level >= LEVELS_MAX {
        return Err(fault("impossible number of levels"));
    }
    let max = (bytes.len() - ROOT_HEADER_SIZE) / (2 * KEY_SIZE);
    Node::new(level, &bytes[ROOT_HEADER_SIZE..], count, max)
        .ok_or_else(|| fault("impossible number of records"))
}

impl<'b> Node<'b> {
    /// Keys and pointers in `area`, which has room for `max` of each.
    fn new(level: u16, area: &'b [u8], count: usize, max: usize) -> Option<Self> {
        let keys = area.get(..count * KEY_SIZE)?;
        let pointers = area.get(max * KEY_SIZE..(max + count) * KEY_SIZE)?;
        (1..=max).contains(&count).then_some(Self { level, keys, pointers })
    }

    fn of_block(geometry: &Geometry, level: u16, bytes: &'b [u8]) -> Result<Self, Corruption> {
        let (count, area) = open(geometry, level, bytes)?;
        let max = area.len() / (2 * KEY_SIZE);
        Self::new(level, area, count, max)
            .ok_or_else(|| Corruption::new("bmbt node", "impossible number of records"))
    }

    fn key(&self, index: usize) -> FileBlock {
        FileBlock(be64(self.keys, index * KEY_SIZE))
    }

    /// The child to look for `at` in, of a node whose children lie in `low..high`.
    fn child(&self, at: FileBlock, low: FileBlock, high: FileBlock) -> Result<Child, Corruption> {
        let count = self.keys.len() / KEY_SIZE;
        let (mut first, mut end) = (0, count);
        while first < end {
            let middle = first + (end - first) / 2;
            if self.key(middle) <= at { first = middle + 1 } else { end = middle }
        }
        // What is before the first key is in no child: the first one says so.
        let index = first.saturating_sub(1);
        let key = self.key(index);
        let next = if index + 1 < count { self.key(index + 1) } else { high };
        if key < low || key >= next || next > high {
            let damage = Corruption::new("bmbt node", "keys out of order");
            return Err(
                damage.mismatch(format_args!("{low} to {high}"), format_args!("{key}, {next}"))
            );
        }
        let block = FsBlock(be64(self.pointers, index * KEY_SIZE));
        Ok(Child { block, level: self.level - 1, low: key, high: next })
    }
}

/// The number of records of a block, and what follows its header.
fn open<'b>(
    geometry: &Geometry,
    level: u16,
    bytes: &'b [u8],
) -> Result<(usize, &'b [u8]), Corruption> {
    if be16(bytes, 4) != level {
        let damage = Corruption::new("bmbt block", "wrong level");
        return Err(damage.mismatch(level, be16(bytes, 4)));
    }
    let header = if geometry.features.crc() { HEADER_SIZES.0 } else { HEADER_SIZES.1 };
    Ok((usize::from(be16(bytes, 6)), &bytes[header..]))
}

fn in_leaf(
    geometry: &Geometry,
    leaf: &Child,
    bytes: &[u8],
    at: FileBlock,
) -> Result<Found, Corruption> {
    let (count, area) = open(geometry, 0, bytes)?;
    let fault = |problem| Corruption::new("bmbt leaf", problem);
    let records =
        area.get(..count * EXTENT_SIZE).ok_or_else(|| fault("impossible number of records"))?;
    let index = list::count_to(records, at);
    let extent = index.checked_sub(1).and_then(|index| list::nth(records, index));
    let next = list::nth(records, index);
    let is_bound = extent.is_none_or(|e| e.offset >= leaf.low && e.end() <= leaf.high)
        && next.is_none_or(|n| n.offset >= leaf.low && n.end() <= leaf.high);
    if !is_bound {
        let bounds = format_args!("{} to {}", leaf.low, leaf.high).to_string();
        let found = extent.or(next).map_or(FileBlock(0), |e| e.offset);
        return Err(fault("extents out of its bounds").mismatch(bounds, found));
    }
    Ok(Found { extent, next: next.map_or(leaf.high, |n| n.offset) })
}
