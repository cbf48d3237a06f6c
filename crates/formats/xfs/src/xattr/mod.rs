//! Extended attributes in all their forms: shortform, leaf and node, and remote values.
//!
//! - Attributes are in the inode as long as the boundary between its forks can be moved so that both fit ([`forkoff`]);
//!   then in a leaf, then in a tree of leaves ([`tree`]). They move back to the inode when they fit again.
//! - The data fork never shrinks below its contents. If it needs more room than the boundary leaves, it is converted to
//!   another form, and the boundary stays.
//! - An [`AttrChange`] changes them within the caller's operation, so no entry is ever left incomplete. Entries that
//!   kernels left incomplete are ignored.

mod blocks;
mod change;
mod create_fork;
pub(crate) mod forkoff;
pub(crate) mod parent;
mod parent_hash;
mod path;
mod read;
mod recover;
mod shrink;
#[cfg(test)]
mod tests;
mod tree;

use operations::Outcome;
use vfs::{Error, Result};

use crate::format::address::FileBlock;
use crate::format::attr::acl::{acl_from_linux, acl_to_linux};
use crate::format::attr::leaf::parent_of;
use crate::format::attr::name::{AttributeName, Encoding, append_linux};
use crate::format::attr::{NAME_LEN_MAX, VALUE_LEN_MAX, flags};
use crate::format::hash::name_hash;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;
use crate::op::source::Source;
use parent::NamedLink;
use read::Key;

pub(crate) use change::AttrChange;

/// Returns the search key of an attribute name.
fn key(name: AttributeName<'_>) -> Key<'_> {
    let AttributeName { namespace, name, .. } = name;
    Key { namespace, name, hash: name_hash(name), value: None }
}

/// Returns the value of an attribute by its Linux name, or `None`.
pub(crate) fn get(
    source: &mut impl Source,
    handle: &Handle,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    let Some(name) = AttributeName::from_linux(name) else { return Ok(None) };
    let Some(value) = read::value_of(source, handle, &key(name))? else { return Ok(None) };
    if name.encoding != Encoding::Acl {
        return Ok(Some(value));
    }
    let damaged = || handle.corrupt("access control list", "its entries are inconsistent");
    acl_to_linux(&value).ok_or_else(damaged).map(Some)
}

/// Reports the Linux names of all attributes except parent pointers.
pub(crate) fn list(
    source: &mut impl Source,
    handle: &Handle,
    each: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let mut shown = Vec::new();
    read::for_each(source, handle, |(flags, name, _)| {
        shown.clear();
        if append_linux(&mut shown, flags, name) {
            each(&shown);
        }
        Ok(())
    })
}

impl Op<'_> {
    /// Creates or replaces an attribute by its Linux name.
    pub(crate) fn set_attr(
        &mut self,
        handle: &mut Handle,
        name: &[u8],
        value: &[u8],
    ) -> Outcome<()> {
        let name = AttributeName::from_linux(name).ok_or_else(|| refusal(name))?;
        if value.len() > VALUE_LEN_MAX {
            return Err(Error::Invalid("a value of more than 64 KiB").into());
        }
        let not_an_acl = Error::Invalid("not a POSIX ACL");
        match name.encoding {
            Encoding::Acl => {
                let stored = acl_from_linux(value).ok_or(not_an_acl)?;
                AttrChange::new(self, handle).set(&key(name), &stored)
            }
            Encoding::StoredAcl if acl_to_linux(value).is_none() => Err(not_an_acl.into()),
            Encoding::StoredAcl | Encoding::Plain => {
                AttrChange::new(self, handle).set(&key(name), value)
            }
        }
    }

    /// Removes an attribute. Fails with `NoAttribute` if it does not exist.
    pub(crate) fn remove_attr(&mut self, handle: &mut Handle, name: &[u8]) -> Outcome<()> {
        let name = AttributeName::from_linux(name).ok_or(Error::NoAttribute)?;
        AttrChange::new(self, handle).remove(&key(name))
    }

    /// Adds a parent pointer. Like the next two functions, does nothing in an image without parent pointers.
    pub(crate) fn add_parent(&mut self, child: &mut Handle, link: NamedLink<'_>) -> Outcome<()> {
        AttrChange::new(self, child).add_parent(link)
    }

    /// Removes a parent pointer.
    pub(crate) fn remove_parent(&mut self, child: &mut Handle, link: NamedLink<'_>) -> Outcome<()> {
        AttrChange::new(self, child).remove_parent(link)
    }

    /// Replaces a parent pointer by another, for a rename.
    pub(crate) fn replace_parent(
        &mut self,
        child: &mut Handle,
        old: NamedLink<'_>,
        new: NamedLink<'_>,
    ) -> Outcome<()> {
        AttrChange::new(self, child).replace_parent(old, new)
    }

    /// Removes all attributes, whatever their state: does not read their blocks.
    pub(crate) fn empty_attrs(&mut self, handle: &mut Handle) -> Outcome<()> {
        if read::form(handle) == read::AttrForm::Blocks {
            self.unmap(handle, Fork::Attr, FileBlock(0)..FileBlock::END)?;
        }
        if handle.inode.has_attr_fork() {
            forkoff::release_empty(handle, true);
        }
        Ok(())
    }

    /// Creates or replaces an attribute by its name on disk. The value of a parent pointer is part of its name.
    pub(crate) fn set_stored_attr(
        &mut self,
        handle: &mut Handle,
        namespace: u8,
        name: &[u8],
        value: &[u8],
    ) -> Outcome<()> {
        let mut key = Key { namespace, name, hash: name_hash(name), value: None };
        if namespace == flags::PARENT {
            let Some((dir, _)) = parent_of(value) else {
                return Err(Error::Invalid("not a parent pointer").into());
            };
            key.hash = parent_hash::hash(&self.fs.volume.geometry, name, dir);
            key.value = Some(value);
        }
        AttrChange::new(self, handle).set(&key, value)
    }

    /// Frees the attribute fork of an inode being freed: at most `budget` blocks, and reduces `budget`. Returns true if
    /// that was all.
    pub(crate) fn drop_attrs(&mut self, handle: &mut Handle, budget: &mut u32) -> Outcome<bool> {
        AttrChange::new(self, handle).drop_all(budget)
    }

    /// Returns whether the attribute fork has at most `max` blocks.
    pub(crate) fn attr_blocks_fit(&mut self, handle: &Handle, max: u32) -> Outcome<bool> {
        Ok(read::blocks_fit(self, handle, max)?)
    }
}

/// Returns the error for a name that cannot be stored.
fn refusal(name: &[u8]) -> Error {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let suffix = prefixes.iter().find_map(|prefix| name.strip_prefix(*prefix));
    if suffix.is_some_and(|suffix| suffix.len() > NAME_LEN_MAX) {
        return Error::NameTooLong;
    }
    Error::unsupported(
        format!("the attribute namespace of {}", String::from_utf8_lossy(name)),
        "use user., trusted., security. or POSIX ACLs",
    )
}
