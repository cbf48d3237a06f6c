//! Directories: random names with the same lengths and hashes.

use std::collections::HashSet;

use vfs::{Ino, Result};

use super::ObfuscatedCopy;
use crate::format::address::{Block, FileBlock};
use crate::format::bytes::be16;
use crate::format::dir::short::{Short, ShortEntry, build};
use crate::format::dir::{self, ALIGN, DirBlockKind, DirLayout, data};
use crate::format::inode::{Fork, Inode};

/// Start of an unused range.
const UNUSED: u16 = 0xffff;
/// Number of bytes of an entry before its name.
const NAME_AT: usize = 9;

impl ObfuscatedCopy<'_> {
    /// Replaces the names of a directory in its inode.
    pub(super) fn short_directory(&mut self, ino: Ino, inode: &mut Inode) -> Result<()> {
        let (geometry, layout) = (self.fs.geometry(), DirLayout::new(self.fs.geometry()));
        let root = self.fs.root_ino();
        let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
        let bytes = inode.fork(Fork::Data);
        let bytes = bytes.get(..size).unwrap_or(bytes).to_vec();
        let new = match Short::parse(&layout, geometry, &bytes) {
            Ok(short) => {
                let mut taken = HashSet::new();
                let names = &mut self.names;
                let is_kept = |name: &[u8]| is_kept(root, ino, name);
                let new: Vec<(Vec<u8>, ShortEntry<'_>)> = short
                    .entries()
                    .map(|entry| match is_kept(entry.name) {
                        true => (entry.name.to_vec(), entry),
                        false => (names.of(Some(ino), entry.name, &mut taken), entry),
                    })
                    .collect();
                let entries = new.iter().map(|(name, entry)| ShortEntry { name, ..*entry });
                build(&layout, short.parent(), entries).to_vec()
            }
            Err(error) => {
                self.copy.remark(format_args!("directory {ino}"), &error);
                Vec::new()
            }
        };
        let fork = inode.fork_mut(Fork::Data);
        let len = new.len().min(fork.len());
        fork[..len].copy_from_slice(&new[..len]);
        fork[len..].fill(0);
        Ok(())
    }

    /// Copies the blocks of a directory.
    pub(super) fn directory(&mut self, ino: Ino) -> Result<()> {
        let layout = DirLayout::new(self.fs.geometry());
        let count = layout.blocks() as usize;
        let blocks = self.blocks(ino, Fork::Data);
        let mut taken = HashSet::new();
        for group in
            blocks.chunk_by(|(one, _), (other, _)| one.0 / count as u64 == other.0 / count as u64)
        {
            let (first, start) = group[0];
            if group.len() != count {
                self.copy
                    .remark(format_args!("block {} of directory {ino}", first.0), &"incomplete");
                continue;
            }
            let size = self.fs.geometry().block_size();
            let mut bytes = Vec::with_capacity(layout.size());
            for (_, block) in group {
                bytes.extend(self.copy.read(self.byte_of(*block), size)?);
            }
            if first < layout.leaf_first() {
                let checked = dir::verify(
                    self.fs.geometry(),
                    DirBlockKind::Data,
                    (ino, first.0 as u32),
                    start,
                    &bytes,
                );
                if let Err(error) = checked {
                    // Its names cannot be found safely.
                    self.copy.remark(format_args!("block {} of directory {ino}", first.0), &error);
                    continue;
                }
                self.entries(ino, &layout, &mut bytes, &mut taken);
                dir::seal(self.fs.geometry(), DirBlockKind::Data, &mut bytes);
            }
            for ((_, block), part) in group.iter().zip(bytes.chunks(size)) {
                self.copy.write(self.byte_of(*block), part)?;
            }
        }
        Ok(())
    }

    /// Replaces the names of a verified data block, and clears its unused bytes.
    fn entries(
        &mut self,
        ino: Ino,
        layout: &DirLayout,
        bytes: &mut [u8],
        taken: &mut HashSet<Vec<u8>>,
    ) {
        let (mut at, end) = (layout.header(), data::end(layout, bytes));
        while at + ALIGN <= end {
            if be16(bytes, at) == UNUSED {
                let len = usize::from(be16(bytes, at + 2)).max(ALIGN);
                if let Some(unused) = bytes.get_mut(at + 4..(at + len - 2).min(end)) {
                    unused.fill(0);
                }
                at += len;
                continue;
            }
            let len = usize::from(bytes[at + 8]);
            let size = layout.entry_size(len);
            if at + size > end {
                return;
            }
            let name = bytes[at + NAME_AT..][..len].to_vec();
            if !is_kept(self.fs.root_ino(), ino, &name) {
                let new = self.names.of(Some(ino), &name, taken);
                bytes[at + NAME_AT..][..len].copy_from_slice(&new);
            }
            // Between the type and the tag.
            bytes[at + NAME_AT + len + usize::from(layout.ftype)..at + size - 2].fill(0);
            at += size;
        }
    }

    /// Returns the logical and device blocks of a fork. Damage is a remark.
    pub(super) fn blocks(&mut self, ino: Ino, fork: Fork) -> Vec<(FileBlock, Block)> {
        let (mut blocks, mut at) = (Vec::new(), FileBlock(0));
        while at < FileBlock::END {
            let run = match self.fs.block_run(ino, fork, at) {
                Ok(run) => run,
                Err(error) => {
                    self.copy.remark(format_args!("the block map of inode {ino}"), &error);
                    break;
                }
            };
            if let Some(start) = run.start {
                blocks.extend((0..run.len).map(|nth| (at.plus(nth), Block(start.0 + nth))));
            }
            at = at.plus(run.len.max(1));
        }
        blocks
    }
}

/// Returns whether an entry keeps its name: `.`, `..`, and `lost+found` of the root, which programs expect.
fn is_kept(root: Ino, dir: Ino, name: &[u8]) -> bool {
    name == b"." || name == b".." || dir == root && name == b"lost+found"
}
