//! Setting and removing attributes, and moving them from the inode to blocks and back.

use operations::{Interrupt, Outcome};

use vfs::{Error, Result};

use super::forkoff;
use super::read::{AttrForm, EntryPosition, Key, blocks_fit, find, form, short_entries};
use crate::format::address::FileBlock;
use crate::format::attr::leaf::{self, Value};
use crate::format::attr::leaf_change::{self, NewEntry};
use crate::format::attr::{AttrLayout, BlockType, flags, remote, shortform};
use crate::format::edit::Edit;
use crate::format::features::Incompat;
use crate::format::hash::name_hash;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;

/// An inode whose attributes an operation changes.
pub(crate) struct AttrChange<'o, 'a> {
    pub(super) op: &'o mut Op<'a>,
    pub(super) handle: &'o mut Handle,
    pub(super) layout: AttrLayout,
}

impl<'o, 'a> AttrChange<'o, 'a> {
    pub(crate) fn new(op: &'o mut Op<'a>, handle: &'o mut Handle) -> Self {
        let layout = AttrLayout::new(&op.fs.volume.geometry);
        Self { op, handle, layout }
    }

    /// Returns a corruption error about the inode or its attributes.
    pub(super) fn corrupt(&self, structure: &'static str, problem: impl Into<String>) -> Interrupt {
        self.handle.corrupt(structure, problem).into()
    }

    /// Creates or replaces an attribute.
    pub(super) fn set(&mut self, key: &Key<'_>, value: &[u8]) -> Outcome<()> {
        if form(self.handle) == AttrForm::Blocks {
            return self.set_in_blocks(key, value);
        }
        if self.set_short(key, value)? {
            return Ok(());
        }
        self.move_to_leaf()?;
        self.insert_in_blocks(key, value)
    }

    /// Creates or replaces an attribute in the inode. Returns false if it does not fit; the old attribute is removed in
    /// that case.
    fn set_short(&mut self, key: &Key<'_>, value: &[u8]) -> Outcome<bool> {
        let size = shortform::entry_size(key.name.len(), value.len());
        if !self.handle.inode.has_attr_fork() {
            self.create_fork(shortform::HEADER_SIZE + size)?;
        } else if form(self.handle) == AttrForm::Empty {
            forkoff::init_short(self.handle);
        }
        let ino = self.handle.ino().0;
        let found = shortform::find(self.handle.inode.fork(Fork::Attr), |e| key.is_short(e));
        if let Some(old) = found.map_err(|c| c.of_inode(ino))? {
            let (at, size, value_at) = (old.at, old.size(), old.value_at());
            let is_same_len = old.value.len() == value.len();
            let fork = self.handle.inode.fork_mut(Fork::Attr);
            if is_same_len {
                fork[value_at..value_at + value.len()].copy_from_slice(value);
                return Ok(true);
            }
            shortform::remove(fork, at, size);
        }
        Ok(append_short(self.handle, key, value)?)
    }

    fn set_in_blocks(&mut self, key: &Key<'_>, value: &[u8]) -> Outcome<()> {
        if let Some(position) = find(self.op, self.handle, key)? {
            if self.overwrite(&position, value)? {
                return Ok(());
            }
            self.remove_in_blocks(position)?;
        }
        self.insert_in_blocks(key, value)
    }

    /// Overwrites a value of the same length in a leaf. Returns false without a change if the old value has another
    /// length or is remote.
    fn overwrite(&mut self, position: &EntryPosition, value: &[u8]) -> Outcome<bool> {
        let layout = self.layout;
        let mut block = self.block(position.path[position.path.len() - 1])?;
        let old = leaf::entry(layout, block.bytes(), position.index);
        let fits = old.is_some_and(
            |entry| matches!(entry.value, Value::Local(old) if old.len() == value.len()),
        );
        if fits {
            leaf_change::overwrite(&mut block, layout, position.index, value);
        }
        Ok(fits)
    }

    /// Adds a new attribute to an inode that has its attributes in blocks.
    fn insert_in_blocks(&mut self, key: &Key<'_>, value: &[u8]) -> Outcome<()> {
        let is_local = leaf::is_local(self.layout, key.name.len(), value.len());
        let value =
            if is_local { Value::Local(value) } else { Value::Remote(self.write_value(value)?) };
        let Key { namespace, name, hash, .. } = *key;
        self.insert_entry(&NewEntry { hash, namespace, name, value })
    }

    /// Removes an attribute. Fails with `NoAttribute` if it does not exist.
    pub(super) fn remove(&mut self, key: &Key<'_>) -> Outcome<()> {
        match form(self.handle) {
            AttrForm::Empty => Err(Error::NoAttribute.into()),
            AttrForm::Short => self.remove_short(key),
            AttrForm::Blocks => {
                let position = find(self.op, self.handle, key)?.ok_or(Error::NoAttribute)?;
                self.remove_in_blocks(position)?;
                self.return_to_inode()
            }
        }
    }

    fn remove_short(&mut self, key: &Key<'_>) -> Outcome<()> {
        let ino = self.handle.ino().0;
        let found = shortform::find(self.handle.inode.fork(Fork::Attr), |e| key.is_short(e));
        let entry = found.map_err(|c| c.of_inode(ino))?.ok_or(Error::NoAttribute)?;
        let (at, size) = (entry.at, entry.size());
        let fork = self.handle.inode.fork_mut(Fork::Attr);
        shortform::remove(fork, at, size);
        if shortform::count(fork) == 0 {
            self.release_empty_fork();
        }
        Ok(())
    }

    /// Removes an attribute fork without attributes, unless every inode has one for its parent pointers.
    fn release_empty_fork(&mut self) {
        forkoff::release_empty(self.handle, self.has_parents());
    }

    /// Returns whether the file system has parent pointers.
    pub(super) fn has_parents(&self) -> bool {
        self.op.fs.volume.geometry.features.incompat(Incompat::PARENT)
    }

    /// Removes an entry and frees the blocks of its value. The tree shrinks, but does not move back into the inode.
    pub(super) fn remove_in_blocks(&mut self, position: EntryPosition) -> Outcome<()> {
        let layout = self.layout;
        let step = position.path[position.path.len() - 1];
        let block = self.block(step)?;
        let value = leaf::entry(layout, block.bytes(), position.index).map(|entry| entry.value);
        // An incomplete entry may have no blocks for its value yet.
        if let Some(Value::Remote(place)) = value
            && place.block != 0
        {
            let first = FileBlock(place.block.into());
            let end = first.plus(remote::blocks(layout, place.len as usize).into());
            self.op.unmap(self.handle, Fork::Attr, first..end)?;
        }
        self.remove_entry(position)
    }

    /// Moves attributes from a single leaf back into the inode if they fit.
    pub(super) fn return_to_inode(&mut self) -> Outcome<()> {
        let layout = self.layout;
        let root = self.block_at(0)?;
        if layout.block_type(root.bytes()) != Some(BlockType::Leaf) {
            return Ok(());
        }
        let Some(bytes) = short_size(layout, root.bytes()) else { return Ok(()) };
        let is_empty = leaf::count(layout, root.bytes()) == 0;
        let old = root.bytes().to_vec();
        let fork_len = self.handle.inode.fork(Fork::Attr).len();
        if !is_empty && bytes > fork_len && !forkoff::can_grow(self.handle, bytes) {
            return Ok(());
        }
        // Blocks other than the leaf contain values whose entries were lost in a crash.
        self.op.unmap(self.handle, Fork::Attr, FileBlock(0)..FileBlock::END)?;
        if is_empty {
            self.release_empty_fork();
            return Ok(());
        }
        forkoff::init_short(self.handle);
        for entry in leaf::entries(layout, &old) {
            let Value::Local(value) = entry.value else { continue };
            let namespace = entry.flags & flags::NAMESPACE;
            let key = Key { namespace, name: entry.name, hash: entry.hash, value: None };
            if !append_short(self.handle, &key, value)? {
                return Err(
                    self.corrupt("attribute leaf", "it has more entries than its header says")
                );
            }
        }
        Ok(())
    }

    /// Moves the attributes from the inode to a leaf.
    pub(super) fn move_to_leaf(&mut self) -> Outcome<()> {
        let old = self.handle.clone();
        forkoff::empty_for_blocks(self.handle);
        if !self.handle.inode.set_extents(Fork::Attr, 0) {
            return Err(self.corrupt("attribute fork", "its extents cannot be counted"));
        }
        let layout = self.layout;
        let root = self.new_block(BlockType::Leaf)?;
        leaf_change::fill(&mut self.block(root)?, layout, []);
        // One leaf may be too small for them: they take more bytes there.
        for entry in short_entries(&old)? {
            let entry = entry.map_err(|c| c.of_inode(old.ino().0))?;
            let new = NewEntry {
                hash: self.short_hash(&entry),
                namespace: entry.flags & flags::NAMESPACE,
                name: entry.name,
                value: Value::Local(entry.value),
            };
            self.insert_entry(&new)?;
        }
        Ok(())
    }

    /// Returns the hash of an attribute in the inode.
    fn short_hash(&self, entry: &shortform::ShortformEntry<'_>) -> u32 {
        let parent = leaf::parent_of(entry.value).filter(|_| entry.flags & flags::PARENT != 0);
        match parent {
            Some((ino, _)) => {
                super::parent_hash::hash(&self.op.fs.volume.geometry, entry.name, ino)
            }
            None => name_hash(entry.name),
        }
    }

    /// Frees the attribute fork of an inode being freed: at most `budget` blocks, and reduces `budget`. Returns true if
    /// that was all.
    ///
    /// A kernel that processes the inode after a crash reads its attributes. So before any of their blocks is freed,
    /// the root is replaced by an empty leaf, and the root is freed last.
    pub(super) fn drop_all(&mut self, budget: &mut u32) -> Outcome<bool> {
        if form(self.handle) == AttrForm::Blocks {
            let fits = blocks_fit(self.op, self.handle, *budget)?;
            if !fits {
                self.empty_root()?;
                let behind_root = FileBlock(1)..FileBlock::END;
                if !self.op.unmap_some(self.handle, Fork::Attr, behind_root, budget)?
                    || *budget == 0
                {
                    return Ok(false);
                }
            }
            if !self.op.unmap_some(self.handle, Fork::Attr, FileBlock(0)..FileBlock::END, budget)? {
                return Ok(false);
            }
        }
        forkoff::remove(self.handle);
        Ok(true)
    }
}

/// Returns the size of a leaf's entries in shortform. `None` if they cannot be in the inode: a value is too long, there
/// are too many, or one is incomplete.
fn short_size(layout: AttrLayout, data: &[u8]) -> Option<usize> {
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

/// Adds a new attribute to those in the inode. Returns false without a change if it does not fit.
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
