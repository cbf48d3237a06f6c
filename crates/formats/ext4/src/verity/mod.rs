//! fs-verity: files whose contents are verified by the kernel on reads and never change.
//!
//! After the contents, starting at the next multiple of 64 KiB, there are a hash tree, then (starting at the next
//! block) a descriptor, and its length in the last four bytes of a block. They are past the size of the file. Source:
//! the kernel's Documentation/filesystems/fsverity.rst and ext4/verity.rst.

mod descriptor;

use disk::merkle::{Digest, Ground, TreeShape};
use operations::RunOperations;
use operations::data;
use operations::inode::look_at;
use vfs::{AllocateMode, Error, FileType, Ino, Result};
use zerocopy::IntoBytes;

use crate::Ext4Core;
use crate::file;
use crate::format::features::{Incompat, RoCompat};
use crate::format::inode::flags;
use crate::inode;
use descriptor::Descriptor;

/// Alignment of the tree: no kernel has larger pages.
const TREE_ALIGN_BYTES: u64 = 64 << 10;

/// Maximum block size of a tree in bytes: the page size of most machines.
const TREE_BLOCK_MAX: u32 = 4096;

/// Size of the descriptor's length field in bytes.
const LENGTH_BYTES: u64 = 4;

/// Layout of the data after the contents.
struct VerityLayout {
    size: u64,
    shape: TreeShape,
    /// Byte offset of the tree in the file.
    tree: u64,
    descriptor: u64,
    end: u64,
}

impl VerityLayout {
    /// Returns `None` if an offset overflows.
    fn new(size: u64, block_size: u32) -> Option<Self> {
        let tree_block = block_size.min(TREE_BLOCK_MAX);
        let shape = TreeShape::new(size, tree_block, tree_block);
        let tree = size.checked_next_multiple_of(TREE_ALIGN_BYTES)?;
        let block = u64::from(block_size);
        let descriptor = tree.checked_add(shape.tree_bytes())?.checked_next_multiple_of(block)?;
        let len = (size_of::<Descriptor>() as u64 + LENGTH_BYTES).next_multiple_of(block);
        Some(Self { size, shape, tree, descriptor, end: descriptor.checked_add(len)? })
    }

    /// Returns the blocks of the descriptor, with its length at the end of the last one.
    fn descriptor_blocks(&self, descriptor: &Descriptor) -> Vec<u8> {
        let bytes = descriptor.as_bytes();
        let mut blocks = vec![0; (self.end - self.descriptor) as usize];
        blocks[..bytes.len()].copy_from_slice(bytes);
        let at = blocks.len() - LENGTH_BYTES as usize;
        blocks[at..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        blocks
    }
}

impl Ext4Core {
    /// Protects a regular file of an image in progress, whose contents must all be on the device: computes its tree
    /// with several threads and stores it. Returns the digest that `fsverity measure` and `fsverity digest` show.
    ///
    /// # Errors
    /// `Unsupported` if the file system does not have the feature or extents; `Invalid` if the file is not regular, or
    /// the image is not in progress.
    pub fn protect(&self, ino: Ino, threads: usize) -> Result<Digest> {
        let layout = self.make_room(ino)?;
        let contents = VerityContents { fs: self, ino, layout: &layout };
        let root = disk::merkle::build(&contents, &layout.shape, &[], threads)?;
        let descriptor = Descriptor::new(layout.size, layout.shape.hash_block(), &root);
        let blocks = layout.descriptor_blocks(&descriptor);
        data::write(self, ino, layout.descriptor, &blocks, None)?;
        self.seal_contents(ino, layout.size)?;
        Ok(disk::merkle::digest(&[descriptor.as_bytes()]))
    }

    /// Allocates the same space as [`Self::protect`] without reading the contents, to determine its size.
    ///
    /// # Errors
    /// Like [`Self::protect`].
    pub fn try_protect(&self, ino: Ino) -> Result<()> {
        let layout = self.make_room(ino)?;
        self.seal_contents(ino, layout.size)
    }

    /// Allocates all blocks at once, so that the layout does not depend on the order of writing threads.
    fn make_room(&self, ino: Ino) -> Result<VerityLayout> {
        let features = &self.volume.sb.features;
        if !features.ro_compat(RoCompat::VERITY) {
            let advice = "turn the feature verity on";
            return Err(Error::unsupported("fs-verity in this file system", advice));
        }
        if !features.incompat(Incompat::EXTENTS) {
            let advice = "turn the feature extent on";
            return Err(Error::unsupported("fs-verity in a file system without extents", advice));
        }
        let attributes = look_at(self, ino, |inode| inode::attributes(self, inode))?;
        if attributes.file_type != FileType::Regular {
            return Err(Error::Invalid("fs-verity protects regular files only"));
        }
        let layout = VerityLayout::new(attributes.size, self.volume.geometry.block_size());
        let layout = layout.ok_or(Error::FileTooLarge)?;
        let len = layout.end - layout.tree;
        data::allocate(self, ino, layout.tree, len, AllocateMode::Exposed)?;
        Ok(layout)
    }

    /// Sets the size of the file back to that of the contents and makes them immutable.
    fn seal_contents(&self, ino: Ino, size: u64) -> Result<()> {
        let _lock = self.locks.exclusive(&[ino]);
        let mut handle = self.load(ino)?;
        handle.inode.set_size(size);
        handle.inode.set_flag(flags::VERITY, true);
        self.atomically(|op| {
            op.stage(handle);
            Ok(())
        })
    }
}

/// Contents of a file whose tree is computed.
struct VerityContents<'a> {
    fs: &'a Ext4Core,
    ino: Ino,
    layout: &'a VerityLayout,
}

impl Ground for VerityContents<'_> {
    type Error = Error;

    fn read_data(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let rest = self.layout.size.saturating_sub(offset);
        let count = rest.min(buf.len() as u64) as usize;
        self.read_all(offset, &mut buf[..count])?;
        buf[count..].fill(0);
        Ok(())
    }

    fn read_tree(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_all(self.layout.tree + offset, buf)
    }

    fn write_tree(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        data::write(self.fs, self.ino, self.layout.tree + offset, bytes, None)
    }
}

impl VerityContents<'_> {
    /// The size of the file includes the data after its contents until sealing.
    fn read_all(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let count = look_at(self.fs, self.ino, |inode| {
                file::read(self.fs, inode, at, &mut buf[done..])
            })?;
            if count == 0 {
                return Err(Error::Invalid("the file was truncated during hashing"));
            }
            done += count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tree_is_where_kernels_expect_it() {
        let places = |size, block| {
            let layout = VerityLayout::new(size, block).unwrap();
            (layout.tree, layout.descriptor, layout.end)
        };
        assert_eq!(places(0, 4096), (0, 0, 4096));
        assert_eq!(places(1, 4096), (65_536, 65_536, 69_632));
        assert_eq!(places(65_536, 4096), (65_536, 69_632, 73_728));
        assert_eq!(places(65_537, 1024), (131_072, 131_072 + 4096, 131_072 + 5120));
        assert!(VerityLayout::new(u64::MAX - 5, 4096).is_none());
    }
}
