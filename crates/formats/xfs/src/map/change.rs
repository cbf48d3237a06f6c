//! Changing the extents of a fork, whether in a list or in a tree.
//!
//! Every change replaces a few adjacent extents by a few others. A list without room for them is converted to a tree
//! first. A tree whose extents fit into a list is converted to a list afterwards: checkers report a tree as damage if a
//! list would suffice.

use operations::Outcome;
use smallvec::{SmallVec, smallvec};
use vfs::{Error, Result};

use super::fork::ForkMap;
use super::{Extent, list};
use crate::btree::Seek;
use crate::format::address::FileBlock;
use crate::format::extent::EXTENT_SIZE;
use crate::format::inode::{Fork, ForkFormat};
use crate::inode::Handle;

/// Consecutive extents.
pub(super) type Extents = SmallVec<[Extent; 5]>;

impl ForkMap<'_, '_> {
    /// Replaces `old` (if given) by `new`, joined with adjacent extents. `new` must be sorted, and cover only logical
    /// blocks of `old` or, without one, of a hole.
    pub(super) fn change_joined(&mut self, old: Option<Extent>, mut new: Extents) -> Outcome<()> {
        let mut old: Extents = old.into_iter().collect();
        let ends = new.first().copied().zip(new.last().copied());
        if let Some((first, last)) = ends {
            // From back to front, so that `first` keeps its index.
            if let Some(right) = self.extent_at(last.end())?
                && let Some(joined) = self.joined(&last, &right)?
            {
                old.push(right);
                let at = new.len() - 1;
                new[at] = joined;
            }
            let left = match first.offset.0.checked_sub(1) {
                Some(before) => self.extent_at(FileBlock(before))?,
                None => None,
            };
            if let (Some(left), Some(first)) = (left, new.first())
                && let Some(joined) = self.joined(&left, first)?
            {
                old.insert(0, left);
                new[0] = joined;
            }
        }
        self.replace_extents(&old, &new)
    }

    /// Returns both extents joined, if `next` continues `extent`. Addresses of adjacent realtime groups may be
    /// contiguous, but no extent may cross their boundary.
    fn joined(&self, extent: &Extent, next: &Extent) -> Outcome<Option<Extent>> {
        let Some(joined) = extent.joined(next) else { return Ok(None) };
        let is_one = self
            .realtime()?
            .is_none_or(|realtime| realtime.device_block(joined.start, joined.len).is_some());
        Ok(is_one.then_some(joined))
    }

    /// Returns the extent that contains a logical block.
    fn extent_at(&mut self, at: FileBlock) -> Outcome<Option<Extent>> {
        let (extent, _) = self.lookup(at)?;
        Ok(extent.filter(|extent| at < extent.end()))
    }

    /// Replaces `old`, which are adjacent, by `new`. If `old` is empty, inserts `new` into the hole at its position.
    pub(super) fn replace_extents(&mut self, old: &[Extent], new: &[Extent]) -> Outcome<()> {
        let (handle, fork) = (&mut *self.handle, self.fork);
        let count = handle.inode.extents(fork) + new.len() as u64;
        let count = count
            .checked_sub(old.len() as u64)
            .ok_or_else(|| handle.corrupt("inode", "it has more extents than counted"))?;
        let fits = count <= list_max(handle, fork);
        if handle.inode.fork_format(fork) == ForkFormat::Extents {
            if fits {
                replace_in_list(handle, fork, old, new)?;
                return Ok(count_extents(handle, fork, count)?);
            }
            self.list_to_tree()?;
        }
        self.replace_in_tree(old, new)?;
        count_extents(self.handle, fork, count)?;
        if fits { self.tree_to_list() } else { Ok(()) }
    }

    fn replace_in_tree(&mut self, old: &[Extent], new: &[Extent]) -> Outcome<()> {
        let ino = self.handle.ino();
        let lost = || -> Error {
            vfs::Corruption::new("bmbt", "an extent is missing").of_inode(ino.0).into()
        };
        let mut cursor = self.cursor()?;
        let common = old.len().min(new.len());
        for (index, (was, is)) in old.iter().zip(new).enumerate() {
            let found = match index {
                0 => cursor.seek(was.offset, Seek::Exactly)?,
                _ => cursor.next()?,
            };
            if found != Some(*was) {
                return Err(lost().into());
            }
            if was != is {
                cursor.update(*is)?;
            }
        }
        for more in &new[common..] {
            cursor.insert(*more)?;
        }
        for rest in &old[common..] {
            if cursor.seek(rest.offset, Seek::Exactly)? != Some(*rest) {
                return Err(lost().into());
            }
            cursor.remove()?;
        }
        Ok(())
    }
}

/// Returns the maximum number of extents in the list of a fork.
pub(super) fn list_max(handle: &Handle, fork: Fork) -> u64 {
    (handle.inode.fork(fork).len() / EXTENT_SIZE) as u64
}

fn count_extents(handle: &mut Handle, fork: Fork, count: u64) -> Result<()> {
    if handle.inode.set_extents(fork, count) {
        return Ok(());
    }
    let is_file = fork == Fork::Data && !handle.inode.is_dir();
    Err(if is_file { Error::FileTooLarge } else { Error::NoSpace })
}

/// Replaces `old` by `new` in a list with room for it.
fn replace_in_list(handle: &mut Handle, fork: Fork, old: &[Extent], new: &[Extent]) -> Result<()> {
    let records = list::records(handle, fork)?;
    let end = records.len();
    let start = match (old.first(), new.first()) {
        (Some(first), _) => list::count_to(records, first.offset).saturating_sub(1),
        (None, Some(first)) => list::count_to(records, first.offset),
        (None, None) => return Ok(()),
    } * EXTENT_SIZE;
    let old_end = start + old.len() * EXTENT_SIZE;
    let new_end = start + new.len() * EXTENT_SIZE;
    let bytes = handle.inode.fork_mut(fork);
    let new_size = (end + new_end).checked_sub(old_end);
    if old_end > end || new_size.is_none_or(|size| size > bytes.len()) {
        return Err(handle.corrupt("extent list", "an extent is missing"));
    }
    bytes.copy_within(old_end..end, new_end);
    for (extent, record) in new.iter().zip(bytes[start..].chunks_exact_mut(EXTENT_SIZE)) {
        extent.put(record);
    }
    let new_size = end + new_end - old_end;
    if let Some(rest) = bytes.get_mut(new_size..end) {
        rest.fill(0);
    }
    Ok(())
}

/// Returns the rest of an extent without its part `cut`.
pub(super) fn without(extent: &Extent, cut: &Extent) -> Extents {
    let head = extent.part(extent.offset, cut.offset);
    let tail = extent.part(cut.end(), extent.end());
    head.into_iter().chain(tail).collect()
}

/// Returns the pieces of an extent whose part `changed` has another state or location than the rest.
pub(super) fn with_part(extent: &Extent, changed: Extent) -> Extents {
    let head = extent.part(extent.offset, changed.offset);
    let tail = extent.part(changed.end(), extent.end());
    let mut all: Extents = head.into_iter().collect();
    all.push(changed);
    all.extend(tail);
    all
}

/// Returns a single extent as a list.
pub(super) fn one(extent: Extent) -> Extents {
    smallvec![extent]
}
