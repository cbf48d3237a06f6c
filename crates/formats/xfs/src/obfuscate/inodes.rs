//! Inodes: random targets of links. Free inodes lose their old contents.

use vfs::{FileType, Ino, Result};

use super::ObfuscatedCopy;
use crate::btree::records::{InoTree, InodeChunk};
use crate::format::address::{AgIno, AgNumber, Block};
use crate::format::bytes::be32;
use crate::format::checksum;
use crate::format::extent::EXTENT_SIZE;
use crate::format::features::Incompat;
use crate::format::inode::{Fork, ForkFormat, Inode, seal_slot};
use crate::format::symlink;
use crate::survey::tree::{Met, Scope, walk};

/// Size of the header of a root of an extent map, and of its keys and pointers, in bytes.
const ROOT_HEADER: usize = 4;
const ROOT_ENTRY: usize = 8;

impl ObfuscatedCopy<'_> {
    /// Copies all inodes, and the names and targets that belong to them.
    pub(super) fn inodes(&mut self) -> Result<()> {
        let chunks = self.chunks();
        if self.fs.geometry().features.incompat(Incompat::PARENT) {
            // Chooses the names of directories, which parent pointers need.
            self.copy.rehearse(true);
            self.each_inode(&chunks)?;
            self.copy.rehearse(false);
        }
        self.each_inode(&chunks)
    }

    fn chunks(&mut self) -> Vec<(AgNumber, InodeChunk)> {
        let (fs, mut chunks) = (self.fs, Vec::new());
        for ag in fs.geometry().ags() {
            let scope = Scope { keys: None, reads_leaves: true };
            let walked = walk::<InoTree>(fs, ag, scope, &mut |met| {
                if let Met::Record(chunk) = met {
                    chunks.push((ag, chunk));
                }
                Ok(())
            });
            if let Err(error) = walked {
                self.copy.remark(format_args!("the tree of inodes of group {ag}"), &error);
            }
        }
        chunks
    }

    fn each_inode(&mut self, chunks: &[(AgNumber, InodeChunk)]) -> Result<()> {
        for (ag, chunk) in chunks {
            for (first, len) in chunk.pieces() {
                for nth in first..first + len {
                    let number = AgIno(chunk.start.0.saturating_add(nth));
                    let ino = self.fs.geometry().ino(*ag, number);
                    self.inode(ino, chunk.free >> nth & 1 == 1)?;
                }
            }
        }
        Ok(())
    }

    fn inode(&mut self, ino: Ino, is_free: bool) -> Result<()> {
        let geometry = self.fs.geometry();
        let Some(at) = self.fs.inode_byte(ino) else { return Ok(()) };
        let slot = match self.copy.read(at, geometry.inode_size()) {
            Ok(slot) => slot,
            Err(error) => {
                self.copy.remark(format_args!("inode {ino}"), &error);
                return Ok(());
            }
        };
        let mut inode = Inode::from_slot(&slot);
        match Inode::parse(geometry, ino, &slot) {
            Ok(_) if !is_free => {
                self.data_fork(ino, &mut inode)?;
                // Parent pointers of metadata files contain the names that their directories keep.
                if !inode.is_metadata() {
                    self.attributes(ino, &mut inode)?;
                }
                clear_unused(&mut inode);
            }
            parsed => {
                // Contents of damaged inodes cannot be told from names.
                let core = inode.core_size();
                inode.as_mut_bytes()[core..].fill(0);
                if let (Err(error), false) = (parsed, is_free) {
                    self.copy.remark(format_args!("inode {ino}"), &error);
                    return self.copy.write(at, inode.as_bytes());
                }
            }
        }
        seal_slot(inode.as_mut_bytes());
        self.copy.write(at, inode.as_bytes())
    }

    fn data_fork(&mut self, ino: Ino, inode: &mut Inode) -> Result<()> {
        let format = inode.fork_format(Fork::Data);
        match (inode.file_type(), format) {
            // The directories of metadata have names that are the same everywhere.
            _ if inode.is_metadata() => Ok(()),
            (Some(FileType::Directory), ForkFormat::Local) => self.short_directory(ino, inode),
            (Some(FileType::Directory), _) => self.directory(ino),
            (Some(FileType::Symlink), ForkFormat::Local) => {
                let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
                let mut target = vec![0; size.min(inode.fork(Fork::Data).len())];
                self.names.random().fill(&mut target);
                let (start, rest) = inode.fork_mut(Fork::Data).split_at_mut(target.len());
                start.copy_from_slice(&target);
                rest.fill(0);
                Ok(())
            }
            (Some(FileType::Symlink), _) => self.link(ino, inode),
            _ => Ok(()),
        }
    }

    /// Writes a random target into the blocks of a link. Each run of blocks has a header in version 5.
    fn link(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let header = symlink::header_size(self.fs.geometry());
        let mut left = usize::try_from(inode.size()).unwrap_or(usize::MAX);
        let blocks = self.blocks(ino, Fork::Data);
        let runs = blocks.chunk_by(|(_, one), (_, other)| one.0 + 1 == other.0);
        for run in runs {
            let (start, len): (Block, usize) = (run[0].1, run.len());
            let mut bytes =
                self.copy.read(self.byte_of(start), len * self.fs.geometry().block_size())?;
            let room = bytes.len() - header;
            let count = match header {
                0 => left.min(room),
                _ if be32(&bytes, 0) != symlink::MAGIC => 0,
                _ => (be32(&bytes, 8) as usize).min(room),
            };
            bytes[header..].fill(0);
            self.names.random().fill(&mut bytes[header..header + count]);
            left = left.saturating_sub(count);
            if header > 0 {
                checksum::seal(&mut bytes, symlink::CRC_OFFSET);
            }
            self.copy.write(self.byte_of(start), &bytes)?;
        }
        Ok(())
    }
}

/// Clears the bytes of both forks after their extents. They may contain older forms of the fork.
fn clear_unused(inode: &mut Inode) {
    for fork in [Fork::Data, Fork::Attr] {
        let format = inode.fork_format(fork);
        let count = usize::try_from(inode.extents(fork)).unwrap_or(usize::MAX);
        let bytes = inode.fork_mut(fork);
        match format {
            ForkFormat::Extents => {
                let end = count.saturating_mul(EXTENT_SIZE).min(bytes.len());
                bytes[end..].fill(0);
            }
            ForkFormat::Btree if bytes.len() > ROOT_HEADER => {
                let max = (bytes.len() - ROOT_HEADER) / (2 * ROOT_ENTRY);
                let used = usize::from(u16::from_be_bytes([bytes[2], bytes[3]])).min(max);
                let (keys, pointers) = (ROOT_HEADER, ROOT_HEADER + max * ROOT_ENTRY);
                bytes[keys + used * ROOT_ENTRY..pointers].fill(0);
                bytes[pointers + used * ROOT_ENTRY..].fill(0);
            }
            _ => {}
        }
    }
}
