//! Parent pointers: one attribute per link, which names the directory and the entry that lead to the
//! inode. They are kept in the operation that changes the link.

use vfs::{Error, Ino, Result};

use crate::inode::Handle;
use crate::op::Op;
use crate::source::Source;

/// One link to an inode: the directory and the name there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link<'n> {
    pub(crate) dir: Ino,
    /// The directory's generation.
    pub(crate) generation: u32,
    pub(crate) name: &'n [u8],
}

/// Reports the links of an inode, as its parent pointers say.
pub(crate) fn for_each(
    _source: &mut impl Source,
    _handle: &Handle,
    _each: &mut dyn FnMut(Link<'_>),
) -> Result<()> {
    Err(Error::unsupported("attributes", ""))
}

impl Op<'_> {
    /// Enters a link into the inode it leads to. Does nothing in an image without parent pointers, as
    /// the other two.
    pub(crate) fn add_parent(&mut self, _child: &mut Handle, _link: Link<'_>) -> Result<()> {
        Err(Error::unsupported("attributes", ""))
    }

    /// Takes a link out of the inode it led to.
    pub(crate) fn remove_parent(&mut self, _child: &mut Handle, _link: Link<'_>) -> Result<()> {
        Err(Error::unsupported("attributes", ""))
    }

    /// Replaces a link by another (a rename).
    pub(crate) fn replace_parent(
        &mut self,
        _child: &mut Handle,
        _old: Link<'_>,
        _new: Link<'_>,
    ) -> Result<()> {
        Err(Error::unsupported("attributes", ""))
    }
}
