//! Walking a tree of a group, or a part of it.
//!
//! The keys below an entry are between its key and the next one, and each level is one lower. So each block is visited
//! at most once, and a walk ends on any image.

use vfs::{Corruption, Result};

use crate::XfsCore;
use crate::alloc::trees::GroupTree;
use crate::format::address::{AgBlock, AgNumber, Block};

/// An item visited by a walk.
pub(crate) enum Met<R> {
    /// A block of the tree.
    Block(Block),
    /// A record, in the order of keys.
    Record(R),
}

/// The part of a tree to walk.
#[derive(Clone, Copy)]
pub(crate) struct Scope<K> {
    /// First and last key, both inclusive. Subtrees outside of this range are skipped.
    pub(crate) keys: Option<(K, K)>,
    /// True if leaves are read. If only blocks are needed, the nodes above contain their numbers.
    pub(crate) reads_leaves: bool,
}

/// A subtree: its location, and the range of its keys.
struct Subtree<K> {
    block: AgBlock,
    level: u16,
    low: Option<K>,
    end: Option<K>,
}

/// Walks the tree of a group, if the file system has it.
///
/// # Errors
/// At the first block that cannot be read or is damaged.
pub(crate) fn walk<T: GroupTree>(
    fs: &XfsCore,
    ag: AgNumber,
    scope: Scope<T::Key>,
    each: &mut dyn FnMut(Met<T::Record>) -> Result<()>,
) -> Result<()> {
    let root = fs.volume.ags.state(ag).root(T::AG_TREE);
    let Some(level) = root.levels.checked_sub(1) else { return Ok(()) };
    let whole = Subtree { block: root.block, level: level.into(), low: None, end: None };
    visit::<T>(fs, ag, &scope, whole, each)
}

fn visit<T: GroupTree>(
    fs: &XfsCore,
    ag: AgNumber,
    scope: &Scope<T::Key>,
    place: Subtree<T::Key>,
    each: &mut dyn FnMut(Met<T::Record>) -> Result<()>,
) -> Result<()> {
    let geometry = fs.geometry();
    let fault =
        |problem: &'static str| Corruption::new(T::SHAPE.name, problem).in_group(ag.0.into());
    if place.block.0 == 0 || place.block.0 >= geometry.ag_len(ag) {
        let last = geometry.ag_len(ag) - 1;
        let damage = fault("a pointer outside the group");
        return Err(damage.mismatch(format_args!("1 to {last}"), place.block).into());
    }
    let block = geometry.block_of(ag, place.block);
    each(Met::Block(block))?;
    if place.level == 0 && !scope.reads_leaves {
        return Ok(());
    }
    let bytes = fs.block(block, T::KIND.of_group(ag))?;
    let is_leaf = place.level == 0;
    let area = if is_leaf { T::SHAPE.leaf_area(geometry) } else { T::SHAPE.node_area(geometry) };
    if area.level(&bytes) != place.level {
        let damage = fault("level").at_block(block.0);
        return Err(damage.mismatch(place.level, area.level(&bytes)).into());
    }
    let count = area.count(&bytes);
    let key = |at: usize| match is_leaf {
        true => T::key_in_record(area.entry(&bytes, at)),
        false => T::key(area.entry(&bytes, at)),
    };
    let mut low = place.low;
    for at in 0..count {
        let here = key(at);
        let is_low = low.is_some_and(|low| here < low || at > 0 && here == low);
        if is_low || place.end.is_some_and(|end| here >= end) {
            return Err(fault("keys out of order").at_block(block.0).into());
        }
        low = Some(here);
        if is_leaf {
            each(Met::Record(T::record(area.entry(&bytes, at))))?;
            continue;
        }
        let end = if at + 1 < count { Some(key(at + 1)) } else { place.end };
        let is_wanted =
            scope.keys.is_none_or(|(from, to)| here <= to && end.is_none_or(|end| end > from));
        if is_wanted {
            let child = AgBlock(u32::try_from(area.pointer(&bytes, at)).unwrap_or(u32::MAX));
            let below = Subtree { block: child, level: place.level - 1, low: Some(here), end };
            visit::<T>(fs, ag, scope, below, each)?;
        }
    }
    Ok(())
}
