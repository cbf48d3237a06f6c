//! Setting and removing attributes, and their way from the inode to blocks and back.

use std::ops::Range;

use transaction::{BufferId, Txn};
use vfs::{Error, Result};

use super::forkoff;
use super::path::{Step, locate, tag};
use super::read::{Form, Key, Position, find, form, short_entries};
use crate::bmap::{self, Place};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::attr::leaf::{self, Value};
use crate::format::attr::leaf_change::{self, NewEntry};
use crate::format::attr::{BlockType, Identity, Layout, flags, remote, shortform, write_info};
use crate::format::edit::Edit;
use crate::format::features::Incompat;
use crate::format::hash::name_hash;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::kind::Kind;
use crate::op::Op;

/// A block that an operation holds, to be changed.
pub(super) struct Held<'t, 'e> {
    txn: &'t mut Txn<'e>,
    id: BufferId,
}

impl Edit for Held<'_, '_> {
    fn bytes(&self) -> &[u8] {
        self.txn.data(self.id)
    }

    fn edit(&mut self, range: Range<usize>) -> &mut [u8] {
        self.txn.edit(self.id, range)
    }
}

impl<'a> Op<'a> {
    pub(super) fn attr_layout(&self) -> Layout {
        Layout::new(&self.fs.volume.geometry)
    }

    /// A leaf or node of a tree, to be changed.
    pub(super) fn attr_block(&mut self, handle: &Handle, step: Step) -> Result<Held<'_, 'a>> {
        let id = self.buffer(step.place, tag(handle, step.at))?;
        Ok(Held { txn: &mut self.txn, id })
    }

    /// As [`Op::attr_block`], by the logical block alone.
    pub(super) fn attr_block_at(&mut self, handle: &Handle, at: u32) -> Result<Held<'_, 'a>> {
        let place = locate(self, handle, at)?;
        self.attr_block(handle, Step { at, place, index: 0 })
    }

    /// A new leaf or node at the first free logical block.
    pub(super) fn new_attr_block(&mut self, handle: &mut Handle, kind: BlockType) -> Result<Step> {
        let (at, _) = self.attr_hole(handle, 1)?;
        let block = self.map_new(handle, Fork::Attr, FileBlock(at.into()), 1)?;
        let geometry = self.fs.volume.geometry;
        let place = geometry.device_block(block);
        let id = self.txn.create(place.0, tag(handle, at))?;
        let who = Identity { owner: handle.ino().0, block: place };
        write_info(&mut Held { txn: &mut self.txn, id }, &geometry, kind, who);
        Ok(Step { at, place, index: 0 })
    }

    /// The first logical blocks of the fork that are free: at least one, at most `len`.
    fn attr_hole(&mut self, handle: &Handle, len: u32) -> Result<(u32, u32)> {
        let mut at = FileBlock(0);
        loop {
            let run = bmap::run_at(self, handle, Fork::Attr, at)?;
            if run.place == Place::Hole && run.len >= len.into() {
                let first =
                    u32::try_from(at.0).ok().filter(|first| first.checked_add(len).is_some());
                return first.map(|first| (first, len)).ok_or(Error::NoSpace);
            }
            at = at.plus(run.len);
        }
    }

    /// Creates or replaces an attribute.
    pub(super) fn set_stored(
        &mut self,
        handle: &mut Handle,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<()> {
        if form(handle) == Form::Blocks {
            return self.set_attr_in_blocks(handle, key, value);
        }
        if self.set_short_attr(handle, key, value)? {
            return Ok(());
        }
        self.short_to_leaf(handle)?;
        self.insert_attr_in_blocks(handle, key, value)
    }

    /// Creates or replaces an attribute in the inode. False if it does not fit there: then it is not
    /// there any more.
    fn set_short_attr(&mut self, handle: &mut Handle, key: &Key<'_>, value: &[u8]) -> Result<bool> {
        let size = shortform::entry_size(key.name.len(), value.len());
        if !handle.inode.has_attr_fork() {
            self.create_attr_fork(handle, shortform::HEADER_SIZE + size)?;
        } else if form(handle) == Form::Empty {
            forkoff::init_short(handle);
        }
        let ino = handle.ino().0;
        let found = shortform::find(handle.inode.fork(Fork::Attr), |e| key.is_short(e));
        if let Some(old) = found.map_err(|c| c.of_inode(ino))? {
            let (at, size, value_at) = (old.at, old.size(), old.value_at());
            let is_same_len = old.value.len() == value.len();
            let fork = handle.inode.fork_mut(Fork::Attr);
            if is_same_len {
                fork[value_at..value_at + value.len()].copy_from_slice(value);
                return Ok(true);
            }
            shortform::remove(fork, at, size);
        }
        append_short(handle, key, value)
    }

    fn set_attr_in_blocks(
        &mut self,
        handle: &mut Handle,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<()> {
        if let Some(position) = find(self, handle, key)? {
            if self.overwrite_attr(handle, &position, value)? {
                return Ok(());
            }
            self.remove_attr_in_blocks(handle, position)?;
        }
        self.insert_attr_in_blocks(handle, key, value)
    }

    /// Writes a value over one of the same length. False, and nothing done, if it is of another, or
    /// not in a leaf.
    fn overwrite_attr(
        &mut self,
        handle: &Handle,
        position: &Position,
        value: &[u8],
    ) -> Result<bool> {
        let layout = self.attr_layout();
        let mut block = self.attr_block(handle, position.path[position.path.len() - 1])?;
        let old = leaf::entry(layout, block.bytes(), position.index);
        let fits = old.is_some_and(
            |entry| matches!(entry.value, Value::Local(old) if old.len() == value.len()),
        );
        if fits {
            leaf_change::overwrite(&mut block, layout, position.index, value);
        }
        Ok(fits)
    }

    /// Adds an attribute that is not there to an inode that has them in blocks.
    fn insert_attr_in_blocks(
        &mut self,
        handle: &mut Handle,
        key: &Key<'_>,
        value: &[u8],
    ) -> Result<()> {
        let is_local = leaf::is_local(self.attr_layout(), key.name.len(), value.len());
        let value = if is_local {
            Value::Local(value)
        } else {
            Value::Remote(self.write_attr_value(handle, value)?)
        };
        let Key { namespace, name, hash, .. } = *key;
        self.insert_attr_entry(handle, &NewEntry { hash, namespace, name, value })
    }

    /// Writes a value to blocks of its own.
    fn write_attr_value(&mut self, handle: &mut Handle, value: &[u8]) -> Result<remote::Place> {
        let layout = self.attr_layout();
        let geometry = self.fs.volume.geometry;
        let count = remote::blocks(layout, value.len());
        let (first, _) = self.attr_hole(handle, count)?;
        let mut parts = value.chunks(remote::bytes_per_block(layout)).enumerate();
        let mut at = first;
        while at < first + count {
            let (start, len) = self.map_attr_blocks(handle, at, first + count - at)?;
            for (step, (index, part)) in (0..len).zip(&mut parts) {
                let block = geometry.device_block(start.plus(step.into()));
                let tag = Kind::AttrRemote.of_inode(handle.ino(), at + step);
                let id = self.txn.create(block.0, tag)?;
                let who = Identity { owner: handle.ino().0, block };
                let offset = index * remote::bytes_per_block(layout);
                let data = self.txn.edit(id, 0..layout.block_size);
                remote::fill(data, &geometry, who, offset, part);
            }
            at += len;
        }
        Ok(remote::Place { block: first, len: value.len() as u32 })
    }

    /// Maps at least one block from `at` on and at most `len`, as many as there are in one piece.
    fn map_attr_blocks(
        &mut self,
        handle: &mut Handle,
        at: u32,
        mut len: u32,
    ) -> Result<(FsBlock, u32)> {
        loop {
            match self.map_new(handle, Fork::Attr, FileBlock(at.into()), len) {
                Err(Error::NoSpace) if len > 1 => len /= 2,
                outcome => return outcome.map(|start| (start, len)),
            }
        }
    }

    /// Removes an attribute. `NoAttribute` if it is not there.
    pub(super) fn remove_stored(&mut self, handle: &mut Handle, key: &Key<'_>) -> Result<()> {
        match form(handle) {
            Form::Empty => Err(Error::NoAttribute),
            Form::Short => self.remove_short_attr(handle, key),
            Form::Blocks => {
                let position = find(self, handle, key)?.ok_or(Error::NoAttribute)?;
                self.remove_attr_in_blocks(handle, position)?;
                self.settle_attr_blocks(handle)
            }
        }
    }

    fn remove_short_attr(&mut self, handle: &mut Handle, key: &Key<'_>) -> Result<()> {
        let ino = handle.ino().0;
        let found = shortform::find(handle.inode.fork(Fork::Attr), |e| key.is_short(e));
        let entry = found.map_err(|c| c.of_inode(ino))?.ok_or(Error::NoAttribute)?;
        let (at, size) = (entry.at, entry.size());
        let fork = handle.inode.fork_mut(Fork::Attr);
        shortform::remove(fork, at, size);
        if shortform::count(fork) == 0 {
            forkoff::settle_empty(handle, self.has_parents());
        }
        Ok(())
    }

    /// Whether links are kept as attributes of the inodes they lead to.
    pub(crate) fn has_parents(&self) -> bool {
        self.fs.volume.geometry.features.incompat(Incompat::PARENT)
    }

    /// Removes an entry and frees what its value takes. A tree shrinks by it, but stays one of blocks.
    pub(super) fn remove_attr_in_blocks(
        &mut self,
        handle: &mut Handle,
        position: Position,
    ) -> Result<()> {
        let layout = self.attr_layout();
        let step = position.path[position.path.len() - 1];
        let block = self.attr_block(handle, step)?;
        let value = leaf::entry(layout, block.bytes(), position.index).map(|entry| entry.value);
        // An entry that is being made may have no place for its value yet.
        if let Some(Value::Remote(place)) = value
            && place.block != 0
        {
            let first = FileBlock(place.block.into());
            let end = first.plus(remote::blocks(layout, place.len as usize).into());
            self.unmap(handle, Fork::Attr, first..end)?;
        }
        self.remove_attr_entry(handle, position)
    }

    /// Brings attributes in a single leaf back into the inode if they fit.
    pub(super) fn settle_attr_blocks(&mut self, handle: &mut Handle) -> Result<()> {
        let layout = self.attr_layout();
        let root = self.attr_block_at(handle, 0)?;
        if layout.block_type(root.bytes()) != Some(BlockType::Leaf) {
            return Ok(());
        }
        let Some(bytes) = short_size(layout, root.bytes()) else { return Ok(()) };
        let is_empty = leaf::count(layout, root.bytes()) == 0;
        let old = root.bytes().to_vec();
        let fork_len = handle.inode.fork(Fork::Attr).len();
        if !is_empty && bytes > fork_len && !forkoff::can_grow(handle, bytes) {
            return Ok(());
        }
        // Blocks beside the leaf are of values that a crash left without an entry.
        self.unmap(handle, Fork::Attr, FileBlock(0)..FileBlock::END)?;
        if is_empty {
            forkoff::settle_empty(handle, self.has_parents());
            return Ok(());
        }
        forkoff::init_short(handle);
        for entry in leaf::entries(layout, &old) {
            let Value::Local(value) = entry.value else { continue };
            let namespace = entry.flags & flags::NAMESPACE;
            let key = Key { namespace, name: entry.name, hash: entry.hash, value: None };
            if !append_short(handle, &key, value)? {
                return Err(handle.corrupt("attribute leaf", "it has more than it said"));
            }
        }
        Ok(())
    }

    /// Moves the attributes of the inode to a leaf.
    pub(super) fn short_to_leaf(&mut self, handle: &mut Handle) -> Result<()> {
        let old = handle.clone();
        forkoff::empty_for_blocks(handle);
        if !handle.inode.set_extents(Fork::Attr, 0) {
            return Err(handle.corrupt("attribute fork", "its extents cannot be counted"));
        }
        let layout = self.attr_layout();
        let root = self.new_attr_block(handle, BlockType::Leaf)?;
        leaf_change::fill(&mut self.attr_block(handle, root)?, layout, []);
        // One leaf may be too small for them: they take more bytes there.
        for entry in short_entries(&old)? {
            let entry = entry.map_err(|c| c.of_inode(old.ino().0))?;
            let new = NewEntry {
                hash: self.short_attr_hash(&entry),
                namespace: entry.flags & flags::NAMESPACE,
                name: entry.name,
                value: Value::Local(entry.value),
            };
            self.insert_attr_entry(handle, &new)?;
        }
        Ok(())
    }

    /// The hash of an attribute in the inode.
    fn short_attr_hash(&self, entry: &shortform::Entry<'_>) -> u32 {
        let parent = leaf::parent_of(entry.value).filter(|_| entry.flags & flags::PARENT != 0);
        match parent {
            Some((ino, _)) => super::parent::hash(&self.fs.volume.geometry, entry.name, ino),
            None => name_hash(entry.name),
        }
    }

    /// Frees the attribute fork of an inode that goes, as far as `budget` blocks go, which is lowered.
    /// Whether that was all.
    ///
    /// Attributes of an inode that is not gone yet are looked at when a crash leaves it to a kernel. So
    /// before any of their blocks go, the root becomes an empty leaf, and it is the last one.
    pub(crate) fn drop_attrs(&mut self, handle: &mut Handle, budget: &mut u32) -> Result<bool> {
        if form(handle) == Form::Blocks {
            let fits = self.attr_blocks_fit(handle, *budget)?;
            if !fits {
                self.empty_attr_root(handle)?;
                let behind_root = FileBlock(1)..FileBlock::END;
                if !self.unmap_some(handle, Fork::Attr, behind_root, budget)? || *budget == 0 {
                    return Ok(false);
                }
            }
            if !self.unmap_some(handle, Fork::Attr, FileBlock(0)..FileBlock::END, budget)? {
                return Ok(false);
            }
        }
        forkoff::remove(handle);
        Ok(true)
    }

    /// Whether the attribute fork has no more than `max` blocks.
    pub(crate) fn attr_blocks_fit(&mut self, handle: &Handle, max: u32) -> Result<bool> {
        if form(handle) != Form::Blocks {
            return Ok(true);
        }
        let mut left = u64::from(max);
        let mut at = FileBlock(0);
        while at < FileBlock::END {
            let run = bmap::run_at(self, handle, Fork::Attr, at)?;
            if run.place != Place::Hole {
                let Some(rest) = left.checked_sub(run.len) else { return Ok(false) };
                left = rest;
            }
            at = at.plus(run.len);
        }
        Ok(true)
    }

    /// Makes the root of a tree of attributes an empty leaf, whatever it is.
    fn empty_attr_root(&mut self, handle: &Handle) -> Result<()> {
        let place = locate(self, handle, 0)?;
        let geometry = self.fs.volume.geometry;
        let id = self.txn.create(place.0, tag(handle, 0))?;
        let who = Identity { owner: handle.ino().0, block: place };
        let mut root = Held { txn: &mut self.txn, id };
        write_info(&mut root, &geometry, BlockType::Leaf, who);
        leaf_change::fill(&mut root, Layout::new(&geometry), []);
        Ok(())
    }
}

/// Bytes that the entries of a leaf take in an inode. `None` if they cannot be there: a value is too
/// long, or there are too many, or one is not complete.
fn short_size(layout: Layout, data: &[u8]) -> Option<usize> {
    if leaf::count(layout, data) > shortform::COUNT_MAX.into() {
        return None;
    }
    let sizes = leaf::entries(layout, data).map(|entry| match entry.value {
        Value::Local(value) if value.len() <= shortform::VALUE_LEN_MAX && entry.is_complete() => {
            Some(shortform::entry_size(entry.name.len(), value.len()))
        }
        _ => None,
    });
    Some(shortform::HEADER_SIZE + sizes.sum::<Option<usize>>()?)
}

/// Adds an attribute that is not there to those in the inode. False, and nothing done, if it does
/// not fit.
pub(super) fn append_short(handle: &mut Handle, key: &Key<'_>, value: &[u8]) -> Result<bool> {
    let ino = handle.ino().0;
    let total = shortform::total(handle.inode.fork(Fork::Attr)).map_err(|c| c.of_inode(ino))?;
    let size = shortform::entry_size(key.name.len(), value.len());
    if value.len() > shortform::VALUE_LEN_MAX || !forkoff::grow_short(handle, total + size) {
        return Ok(false);
    }
    let fork = handle.inode.fork_mut(Fork::Attr);
    Ok(shortform::append(fork, total, key.namespace, key.name, value))
}

/// Logical blocks of a tree's leaves and nodes, to be freed one by one.
pub(super) fn one_block(at: u32) -> Range<FileBlock> {
    FileBlock(at.into())..FileBlock(u64::from(at) + 1)
}
