//! Extended attributes in all their forms: shortform, leaf, node, with values beside them.

pub(crate) mod parent;

use vfs::{Error, Result};

use crate::inode::Handle;
use crate::op::Op;
use crate::source::Source;

/// Who may see an attribute (`XFS_ATTR_*` of an entry's flags).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// `user.`
    User,
    /// `trusted.`, and POSIX ACLs as `SGI_ACL_FILE` and `SGI_ACL_DEFAULT`.
    Root,
    /// `security.`
    Secure,
    /// Parent pointers, which no interface shows as attributes.
    Parent,
}

/// The value of an attribute named as Linux names it, or `None`.
pub(crate) fn get(
    _source: &mut impl Source,
    _handle: &Handle,
    _name: &[u8],
) -> Result<Option<Vec<u8>>> {
    Err(Error::unsupported("attributes", ""))
}

/// Reports the names of all attributes as Linux names them; parent pointers are left out.
pub(crate) fn list(
    _source: &mut impl Source,
    _handle: &Handle,
    _each: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    Err(Error::unsupported("attributes", ""))
}

impl Op<'_> {
    /// Creates or replaces an attribute named as Linux names it.
    pub(crate) fn set_attr(
        &mut self,
        _handle: &mut Handle,
        _name: &[u8],
        _value: &[u8],
    ) -> Result<()> {
        Err(Error::unsupported("attributes", ""))
    }

    /// Removes an attribute. `NoAttribute` if there is none of that name.
    pub(crate) fn remove_attr(&mut self, _handle: &mut Handle, _name: &[u8]) -> Result<()> {
        Err(Error::unsupported("attributes", ""))
    }

    /// Frees all of the attribute fork, of an inode that goes.
    pub(crate) fn drop_attrs(&mut self, _handle: &mut Handle) -> Result<()> {
        Err(Error::unsupported("attributes", ""))
    }
}
