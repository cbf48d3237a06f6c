//! Where verified blocks come from: the cache, or an operation that holds what it reads.
//!
//! Finding a block of a fork and looking up a name or an attribute are the same for readers and for
//! operations, with the same checks. Only an operation sees blocks it has changed itself, and it must
//! ask its transaction for them: a block that a transaction holds cannot be read past it.

use transaction::Tag;
use vfs::{Ino, Result};

use crate::Xfs;
use crate::dir::BufferedAddresses;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::Layout;
use crate::format::geometry::Geometry;
use crate::inode::Handle;
use crate::op::Op;

/// What maps, directories and attributes are read from.
pub(crate) trait Source {
    /// The file system.
    fn fs(&self) -> &Xfs;

    /// Lets `look` see a metadata block, verified as `tag` says.
    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T>;

    /// A directory block of several blocks, if an operation has a copy of it in one piece.
    fn whole(&self, _ino: Ino, _at: FileBlock) -> Option<&[u8]> {
        None
    }

    /// Addresses of entries of a directory with a hash that are buffered for a leaf, by the leaf's number.
    fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses;

    /// Where a block of a directory is, if that is kept beside it. The directory is locked.
    fn known_place(&self, _dir: &Handle, _layout: &Layout, _at: FileBlock) -> Option<Block> {
        None
    }

    /// Whether something is kept of a directory, which then is one with nodes. The directory is locked.
    fn is_known_node(&self, _dir: &Handle) -> bool {
        false
    }

    /// The shape of the file system.
    fn geometry(&self) -> Geometry {
        self.fs().volume.geometry
    }
}

/// Reads blocks as they are in the cache, and holds none of them.
impl Source for &Xfs {
    fn fs(&self) -> &Xfs {
        self
    }

    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        Ok(look(&self.block(place, tag)?))
    }

    fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses {
        self.dirs.buffered(dir, leaf, hash)
    }

    fn known_place(&self, dir: &Handle, layout: &Layout, at: FileBlock) -> Option<Block> {
        self.dirs.block_at(dir, layout, at)
    }

    fn is_known_node(&self, dir: &Handle) -> bool {
        self.dirs.is_node(dir)
    }
}

/// Holds what it reads to its end.
impl Source for Op<'_> {
    fn fs(&self) -> &Xfs {
        self.fs
    }

    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let id = self.buffer(place, tag)?;
        Ok(look(self.txn.data(id)))
    }

    fn whole(&self, ino: Ino, at: FileBlock) -> Option<&[u8]> {
        self.wholes.find(ino, at)
    }

    fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses {
        self.dirs.buffered(dir, leaf, hash)
    }
}
