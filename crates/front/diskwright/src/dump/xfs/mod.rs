//! Structures of XFS.

mod block;
mod directory;
mod group;
mod inode;
mod journal;
pub(super) mod superblock;

use vfs::{Error as FsError, Ino};
use xfs::Xfs;
use xfs::format::address::Block;
use xfs::format::geometry::Geometry;

use super::{Dump, Fields, Structures};

/// Image to dump.
pub(super) type Source = super::Source<Xfs>;

impl Source {
    fn geometry(&self) -> &Geometry {
        self.fs.geometry()
    }

    fn has_crc(&self) -> bool {
        self.geometry().features.crc()
    }

    /// Returns raw bytes of the image.
    fn bytes(&self, start: u64, len: usize) -> vfs::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.device.read_at(start, &mut bytes).map_err(FsError::Device)?;
        Ok(bytes)
    }

    /// Returns the raw bytes of a block.
    fn block_bytes(&self, block: Block) -> vfs::Result<Vec<u8>> {
        if block.0 >= self.geometry().blocks {
            return Err(FsError::Invalid("no such block; the superblock has the number of blocks"));
        }
        self.bytes(self.geometry().byte_of(block), self.geometry().block_size())
    }
}

impl Structures for Source {
    fn group(&self, number: u32) -> vfs::Result<Dump> {
        self.headers(number)
    }

    fn inode(&self, ino: Ino) -> vfs::Result<Dump> {
        self.inode_fields(ino)
    }

    fn directory(&self, ino: Ino) -> vfs::Result<Dump> {
        self.directory_blocks(ino)
    }

    fn block(&self, number: u64) -> vfs::Result<Dump> {
        self.block_contents(Block(number))
    }

    fn journal(&self) -> vfs::Result<Dump> {
        self.log()
    }
}
