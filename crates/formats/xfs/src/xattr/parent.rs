//! Parent pointers: one attribute per link, which contains the directory and the name of the entry that leads to the
//! inode. They change in the same operation as the link.
//!
//! An attribute is identified by the name of the entry and by its value, which contains the directory: a file may have
//! the same name in several directories. Most inodes have one link and few attributes, so changes in shortform scan the
//! attributes once and change nothing else.

use operations::Outcome;
use vfs::{Error, Ino, Result};

use super::change::{AttrChange, append_short};
use super::read::{self, AttrForm, Key, form};
use super::{forkoff, parent_hash};
use crate::format::attr::flags;
use crate::format::attr::leaf::{PARENT_SIZE, parent_of, parent_value};
use crate::format::attr::shortform;
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::source::Source;

/// A link to an inode: the directory and the name in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamedLink<'n> {
    pub(crate) dir: Ino,
    /// The directory's generation.
    pub(crate) generation: u32,
    pub(crate) name: &'n [u8],
}

impl<'n> NamedLink<'n> {
    pub(super) fn value(&self) -> [u8; PARENT_SIZE] {
        parent_value(self.dir.0, self.generation)
    }

    pub(super) fn key<'a>(&self, geometry: &Geometry, value: &'a [u8]) -> Key<'a>
    where
        'n: 'a,
    {
        let hash = parent_hash::hash(geometry, self.name, self.dir.0);
        Key { namespace: flags::PARENT, name: self.name, hash, value: Some(value) }
    }

    /// Like [`Link::key`], for shortform attributes, which need no hash.
    fn short_key<'a>(&self, value: &'a [u8]) -> Key<'a>
    where
        'n: 'a,
    {
        Key { namespace: flags::PARENT, name: self.name, hash: 0, value: Some(value) }
    }
}

/// Reports the links of an inode according to its parent pointers.
pub(crate) fn for_each(
    source: &mut impl Source,
    handle: &Handle,
    each: &mut dyn FnMut(NamedLink<'_>),
) -> Result<()> {
    read::for_each(source, handle, |(flags, name, value)| {
        if flags & flags::NAMESPACE != flags::PARENT {
            return Ok(());
        }
        let Some((dir, generation)) = value.and_then(parent_of) else {
            return Err(handle.corrupt("parent pointer", "its value is invalid"));
        };
        each(NamedLink { dir: Ino(dir), generation, name });
        Ok(())
    })
}

impl AttrChange<'_, '_> {
    /// Adds a parent pointer. Like the next two functions, does nothing in an image without parent pointers.
    pub(super) fn add_parent(&mut self, link: NamedLink<'_>) -> Outcome<()> {
        if !self.has_parents() {
            return Ok(());
        }
        let value = link.value();
        if form(self.handle) == AttrForm::Blocks {
            return self.set(&link.key(&self.op.fs.volume.geometry, &value), &value);
        }
        // A directory has no two entries with one name, so the link is new.
        if !self.handle.inode.has_attr_fork() {
            let size = shortform::entry_size(link.name.len(), value.len());
            self.create_fork(shortform::HEADER_SIZE + size)?;
        } else if form(self.handle) == AttrForm::Empty {
            forkoff::init_short(self.handle);
        }
        if append_short(self.handle, &link.short_key(&value), &value)? {
            return Ok(());
        }
        self.move_to_leaf()?;
        self.set(&link.key(&self.op.fs.volume.geometry, &value), &value)
    }

    /// Removes a parent pointer.
    pub(super) fn remove_parent(&mut self, link: NamedLink<'_>) -> Outcome<()> {
        if !self.has_parents() {
            return Ok(());
        }
        let value = link.value();
        let outcome = if form(self.handle) == AttrForm::Short {
            self.remove(&link.short_key(&value))
        } else {
            self.remove(&link.key(&self.op.fs.volume.geometry, &value))
        };
        outcome.map_err(|why| why.map_failure(|error| lost(self.handle, error)))
    }

    /// Replaces a parent pointer by another, for a rename.
    pub(super) fn replace_parent(&mut self, old: NamedLink<'_>, new: NamedLink<'_>) -> Outcome<()> {
        if !self.has_parents() {
            return Ok(());
        }
        if form(self.handle) == AttrForm::Short && old.name.len() == new.name.len() {
            return Ok(replace_short(self.handle, &old, &new)?);
        }
        self.remove_parent(old)?;
        self.add_parent(new)
    }
}

/// Overwrites a parent pointer with one of the same size.
fn replace_short(child: &mut Handle, old: &NamedLink<'_>, new: &NamedLink<'_>) -> Result<()> {
    let value = old.value();
    let key = old.short_key(&value);
    let ino = child.ino().0;
    let found = shortform::find(child.inode.fork(Fork::Attr), |e| key.is_short(e));
    let found = found.map_err(|c| c.of_inode(ino))?;
    let value_at = found.map(|e| e.value_at()).ok_or_else(|| lost(child, Error::NoAttribute))?;
    let fork = child.inode.fork_mut(Fork::Attr);
    fork[value_at - new.name.len()..value_at].copy_from_slice(new.name);
    fork[value_at..value_at + PARENT_SIZE].copy_from_slice(&new.value());
    Ok(())
}

/// Returns the error for a missing parent pointer, which is damage.
fn lost(child: &Handle, error: Error) -> Error {
    match error {
        Error::NoAttribute => child.corrupt("parent pointers", "an existing link is missing"),
        other => other,
    }
}
