//! Sources of verified blocks: the cache, or an operation that holds what it reads.
//!
//! Mapping a block of a fork and looking up a name or an attribute share their code and checks between readers and
//! operations. Only an operation sees blocks that it has changed itself. It must read them through its transaction: a
//! block held by a transaction cannot be read from the cache.

use engine::Tag;
use vfs::{Ino, Result};

use crate::XfsCore;
use crate::dir::BufferedAddresses;
use crate::format::address::{Block, FileBlock};
use crate::format::dir::DirLayout;
use crate::format::geometry::Geometry;
use crate::inode::Handle;
use crate::op::Op;

/// A source of blocks for maps, directories and attributes.
pub(crate) trait Source {
    /// Returns the file system.
    fn fs(&self) -> &XfsCore;

    /// Calls `look` with the contents of a metadata block, verified according to `tag`.
    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T>;

    /// Returns a directory block of several file-system blocks, if the operation has a contiguous copy.
    fn whole(&self, _ino: Ino, _at: FileBlock) -> Option<&[u8]> {
        None
    }

    /// Returns the addresses of directory entries with this hash in the insert buffer of leaf number `leaf`.
    fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses;

    /// Returns the location of a directory's block, if the directory's state in memory has it. The directory must be
    /// locked.
    fn known_place(&self, _dir: &Handle, _layout: &DirLayout, _at: FileBlock) -> Option<Block> {
        None
    }

    /// Returns whether a state of the directory is in memory, which implies node form. The directory must be locked.
    fn is_known_node(&self, _dir: &Handle) -> bool {
        false
    }

    /// Returns the geometry of the file system.
    fn geometry(&self) -> Geometry {
        self.fs().volume.geometry
    }
}

/// Reads blocks from the cache and holds none of them.
impl Source for &XfsCore {
    fn fs(&self) -> &XfsCore {
        self
    }

    fn with<T>(&mut self, place: Block, tag: Tag, look: impl FnOnce(&[u8]) -> T) -> Result<T> {
        Ok(look(&self.block(place, tag)?))
    }

    fn buffered(&self, dir: Ino, leaf: u32, hash: u32) -> BufferedAddresses {
        self.dirs.buffered(dir, leaf, hash)
    }

    fn known_place(&self, dir: &Handle, layout: &DirLayout, at: FileBlock) -> Option<Block> {
        self.dirs.block_at(dir, layout, at)
    }

    fn is_known_node(&self, dir: &Handle) -> bool {
        self.dirs.is_node(dir)
    }
}

/// Holds every block it reads until the operation ends.
impl Source for Op<'_> {
    fn fs(&self) -> &XfsCore {
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
