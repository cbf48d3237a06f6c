//! Access to directories block by block.

use std::ops::ControlFlow;

use operations::inode::Inodes;
use vfs::{Ino, Result};

use crate::Ext4Core;
use crate::dir::{self, for_each_leaf, index, inline_parent, inline_parts};
use crate::format::address::{Block, FileBlock};
use crate::format::htree::{self, Index, IndexKind};
use crate::format::inode::flags;
use crate::inode::inline;
use crate::kind::BlockKind;
use crate::op::source::BlockSource;

/// Part of a directory that contains entries.
#[derive(Clone, Copy, Debug)]
pub enum DirectoryPart<'p> {
    /// A block: its number in the directory, its device block, and its bytes.
    Block(FileBlock, Block, &'p [u8]),
    /// The parent of an inline directory. It comes first and replaces `.` and `..`.
    InlineParent(Ino),
    /// Entries stored in the inode.
    Inline(&'p [u8]),
}

/// A node of a directory's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexNode {
    /// Number of levels above it: 0 for the root.
    pub level: u8,
    /// Its block number in the directory.
    pub block: FileBlock,
    /// Hash version of the names.
    pub hash_version: u8,
    /// Number of node levels below the root.
    pub levels: u8,
    /// Maximum number of entries.
    pub limit: u16,
    /// Its stored checksum; 0 in a file system without checksums.
    pub checksum: u32,
    /// Hash and file block of each entry.
    pub entries: Vec<(u32, FileBlock)>,
}

impl Ext4Core {
    /// Passes the parts of a directory that contain entries to `each`, in order. Skips inner nodes of an index.
    ///
    /// # Errors
    /// `NotFound` and `NotADirectory`; `Corrupt` for a damaged block. Parts before the damage were passed.
    pub fn directory_parts(&self, dir: Ino, each: &mut dyn FnMut(DirectoryPart<'_>)) -> Result<()> {
        let _lock = Inodes::locks(self).shared(dir);
        let handle = self.any_inode(dir)?;
        if !handle.inode.is_dir() {
            return Err(vfs::Error::NotADirectory);
        }
        if handle.has_flag(flags::INLINE_DATA) {
            let contents = inline::contents(self, &handle)?;
            let parts = inline_parts(self, &handle, &contents)?;
            each(DirectoryPart::InlineParent(Ino(inline_parent(&handle).into())));
            parts.iter().for_each(|(_, bytes)| each(DirectoryPart::Inline(bytes)));
            return Ok(());
        }
        for_each_leaf(&mut &*self, &handle, FileBlock(0), &mut |source, block, place, kind| {
            source.with(place, kind.of(handle.owner), |bytes| {
                each(DirectoryPart::Block(block, place, bytes));
            })?;
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Returns the nodes of a directory's index, each before its children. Empty if the directory has no index.
    ///
    /// # Errors
    /// `NotFound` and `NotADirectory`; `Corrupt` for a damaged node.
    pub fn index_nodes(&self, dir: Ino) -> Result<Vec<IndexNode>> {
        let _lock = Inodes::locks(self).shared(dir);
        let handle = self.any_inode(dir)?;
        if !handle.inode.is_dir() {
            return Err(vfs::Error::NotADirectory);
        }
        if !index::is_indexed(self, &handle) {
            return Ok(Vec::new());
        }
        let (info, _) = index::root(&mut &*self, &handle)?;
        // Fails if the index has more nodes than the directory has blocks, which bounds the walk below.
        let blocks = dir::blocks_count(self, &handle)?;
        index::nodes(&mut &*self, &handle, info, blocks)?;
        let mut nodes = Vec::new();
        let mut waiting = vec![(0, FileBlock(0))];
        while let Some((level, block)) = waiting.pop() {
            let (kind, place) = match level {
                0 => (BlockKind::HtreeRoot, IndexKind::Root),
                _ => (BlockKind::HtreeNode, IndexKind::Node),
            };
            let (limit, checksum, entries) =
                index::with_block(&mut &*self, &handle, block, kind, |bytes| {
                    let index = Index::new(bytes, place);
                    let entries = (0..index.count()).map(|at| (index.hash(at), index.block(at)));
                    let stored = htree::stored_checksum(bytes, place);
                    (index.limit(), stored, entries.collect::<Vec<_>>())
                })?;
            if level < info.indirect_levels {
                waiting.extend(entries.iter().rev().map(|(_, below)| (level + 1, *below)));
            }
            let checksum = checksum.filter(|_| self.volume.checksums).unwrap_or_default();
            let (hash_version, levels) = (info.hash_version, info.indirect_levels);
            nodes.push(IndexNode { level, block, hash_version, levels, limit, checksum, entries });
        }
        Ok(nodes)
    }

    /// Returns the hash of a name in an index, major and minor. Returns `None` for an unknown hash version.
    pub fn hash_of_name(&self, version: u8, name: &[u8]) -> Option<(u32, u32)> {
        let hash = self.volume.hasher(version)?.hash(name);
        Some((hash.major, hash.minor))
    }

    /// Adds an empty block to a directory.
    ///
    /// # Errors
    /// `NotFound` and `NotADirectory`; `NoSpace`; `ReadOnly`; errors of reading.
    pub fn expand_directory(&self, dir: Ino) -> Result<()> {
        use operations::RunOperations;
        use operations::names::Directories;
        self.check_writable()?;
        let _lock = Inodes::locks(self).exclusive(&[dir]);
        let before = operations::inode::load_dir(self, dir)?;
        if before.has_flag(flags::INLINE_DATA) || index::is_indexed(self, &before) {
            return Err(vfs::Error::Invalid(
                "only directories without an index or inline data can get an empty block",
            ));
        }
        self.atomically(|op| {
            let mut parent = before;
            op.append_leaf(&mut parent)?;
            <Self as Directories>::stage_dir(op, parent, &before)
        })
    }
}
