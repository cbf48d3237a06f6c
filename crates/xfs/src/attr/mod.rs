//! Extended attributes in all their forms: shortform, leaf, node, with values beside them.
//!
//! - Attributes are in the inode as long as the boundary between its forks can be moved so that both
//!   fit ([`forkoff`]); then in a leaf, then in a tree of leaves ([`tree`]). They come back to the
//!   inode when they fit again.
//! - The data fork never shrinks below what it uses. A data fork that wants more room than the
//!   boundary leaves it changes its form; the boundary does not move for it.
//! - Everything happens in the caller's operation, so that no entry is ever left incomplete, and
//!   those that kernels left so are passed over.

mod change;
pub(crate) mod forkoff;
pub(crate) mod parent;
mod path;
mod read;
mod recover;
mod shrink;
#[cfg(test)]
mod tests;
mod tree;

use vfs::{Error, Result};

use crate::format::attr::acl::{acl_from_linux, acl_to_linux};
use crate::format::attr::name::{AttributeName, Encoding, append_linux};
use crate::format::attr::{NAME_LEN_MAX, VALUE_LEN_MAX};
use crate::format::hash::name_hash;
use crate::inode::Handle;
use crate::op::Op;
use crate::source::Source;
use read::Key;

/// What an attribute of this name is found by.
fn key(name: AttributeName<'_>) -> Key<'_> {
    let AttributeName { namespace, name, .. } = name;
    Key { namespace, name, hash: name_hash(name), value: None }
}

/// The value of an attribute named as Linux names it, or `None`.
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
    let damaged = || handle.corrupt("access control list", "its entries do not add up");
    acl_to_linux(&value).ok_or_else(damaged).map(Some)
}

/// Reports the names of all attributes as Linux names them; parent pointers are left out.
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
    /// Creates or replaces an attribute named as Linux names it.
    pub(crate) fn set_attr(
        &mut self,
        handle: &mut Handle,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let name = AttributeName::from_linux(name).ok_or_else(|| refusal(name))?;
        if value.len() > VALUE_LEN_MAX {
            return Err(Error::Invalid("a value of more than 64 KiB"));
        }
        let not_an_acl = Error::Invalid("not a POSIX ACL");
        match name.encoding {
            Encoding::Acl => {
                let stored = acl_from_linux(value).ok_or(not_an_acl)?;
                self.set_stored(handle, &key(name), &stored)
            }
            Encoding::StoredAcl if acl_to_linux(value).is_none() => Err(not_an_acl),
            Encoding::StoredAcl | Encoding::Plain => self.set_stored(handle, &key(name), value),
        }
    }

    /// Removes an attribute. `NoAttribute` if there is none of that name.
    pub(crate) fn remove_attr(&mut self, handle: &mut Handle, name: &[u8]) -> Result<()> {
        let name = AttributeName::from_linux(name).ok_or(Error::NoAttribute)?;
        self.remove_stored(handle, &key(name))
    }
}

/// Why a name cannot be stored.
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
