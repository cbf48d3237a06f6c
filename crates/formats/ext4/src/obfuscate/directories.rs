//! Directories: random names of the same lengths.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use operations::obfuscate::RandomNames;
use vfs::Result;

use super::ObfuscatedCopy;
use super::hashed::{HashedNames, Leaf, NamePlace};
use crate::debug::{DirectoryPart, IndexNode, MapEntry};
use crate::format::address::{Block, FileBlock};
use crate::format::dirent::{self, HEADER_SIZE, TAIL_SIZE, record_at, write_rec_len};
use crate::format::htree::{self, IndexKind};
use crate::format::inode::{ROOT_INO, flags};
use crate::inode::Handle;

/// Number of random names that are tried without an index.
const TRIES: usize = 200;
/// Size of the records of `.` and `..` in the root of an index, in bytes.
const DOT_SIZE: usize = 12;
/// Size of an entry of an index, in bytes.
const INDEX_ENTRY_SIZE: usize = 8;

/// Names of a directory without an index in the copy.
struct NewNames {
    taken: HashSet<Vec<u8>>,
    /// The root keeps `lost+found`, which e2fsck expects.
    is_root: bool,
}

impl ObfuscatedCopy<'_> {
    /// Copies a directory. Returns false if it has lost its index.
    pub(super) fn directory(&mut self, handle: &Handle) -> Result<bool> {
        let (fs, ino) = (self.fs, handle.ino());
        let mut leaves: Vec<Leaf> = Vec::new();
        let read = fs.directory_parts(ino, &mut |part| {
            if let DirectoryPart::Block(number, block, bytes) = part {
                leaves.push((number, block, bytes.to_vec()));
            }
        });
        let nodes = read.and_then(|()| fs.index_nodes(ino)).unwrap_or_else(|error| {
            self.copy.remark(format_args!("directory {ino}"), &error);
            Vec::new()
        });
        if handle.has_flag(flags::ENCRYPT) {
            // Encrypted names tell nothing.
            leaves
                .iter()
                .try_for_each(|(_, at, bytes)| self.copy.write(self.byte_of(*at), bytes))?;
            self.nodes(handle, &nodes, true)?;
            return Ok(true);
        }
        // Nodes of an index have no names but `.` and `..`.
        let of_index: HashSet<FileBlock> = nodes.iter().map(|node| node.block).collect();
        leaves.retain(|(number, ..)| !of_index.contains(number));
        let is_indexed = match self.indexed_leaves(handle, &leaves, &nodes) {
            Some(indexed) => {
                self.write_leaves(handle, indexed)?;
                true
            }
            None => {
                let mut names = NewNames { taken: HashSet::new(), is_root: ino == ROOT_INO };
                leaves.iter_mut().for_each(|(.., bytes)| self.entries(bytes, &mut names));
                self.write_leaves(handle, leaves)?;
                false
            }
        };
        self.nodes(handle, &nodes, is_indexed)?;
        Ok(is_indexed)
    }

    /// Returns the leaves of an indexed directory with new names. Returns `None` without an index, or if some leaf finds no
    /// name whose hash is in its range.
    fn indexed_leaves(
        &mut self,
        handle: &Handle,
        leaves: &[Leaf],
        nodes: &[IndexNode],
    ) -> Option<Vec<Leaf>> {
        let version = nodes.first()?.hash_version;
        let (by_block, mut leaves) = (ranges(nodes), leaves.to_vec());
        let (mut ranges, mut places) = (Vec::new(), Vec::new());
        for (leaf, (number, _, bytes)) in leaves.iter_mut().enumerate() {
            ranges.push((by_block.get(number)?.clone(), leaf));
            clear_unused(bytes, handle.ino() == ROOT_INO, &mut |_, record, len| {
                places.push((len, NamePlace { leaf, record }));
            });
        }
        ranges.sort_unstable_by_key(|(range, _)| (range.start, range.end));
        places.sort_by_key(|(len, _)| *len);
        let hasher = self.fs.volume.hasher(version)?;
        let mut names = HashedNames {
            hash: &|name| Some(hasher.hash(name)),
            ranges,
            random: &mut self.random,
            is_text: handle.has_flag(flags::CASEFOLD),
            taken: HashSet::new(),
        };
        names.write(&places, &mut leaves).then_some(leaves)
    }

    fn write_leaves(&mut self, handle: &Handle, leaves: Vec<Leaf>) -> Result<()> {
        for (_, block, mut bytes) in leaves {
            if self.fs.volume.checksums {
                dirent::seal(&mut bytes, handle.owner.seed);
            }
            self.copy.write(self.byte_of(block), &bytes)?;
        }
        Ok(())
    }

    /// Replaces the names of a directory in its inode.
    pub(super) fn inline_entries(&mut self, handle: &Handle, bytes: &mut [u8]) {
        let is_root = handle.ino() == ROOT_INO;
        self.entries(bytes, &mut NewNames { taken: HashSet::new(), is_root });
    }

    /// Replaces all names of a block, and clears the bytes between records.
    fn entries(&mut self, bytes: &mut [u8], names: &mut NewNames) {
        let random = &mut self.random;
        clear_unused(bytes, names.is_root, &mut |bytes, record, len| {
            if let Some(name) = new_name(random, len, &mut names.taken) {
                bytes[record + HEADER_SIZE..][..len].copy_from_slice(&name);
            }
        });
    }

    /// Writes the nodes of an index, or empty blocks instead.
    fn nodes(&mut self, handle: &Handle, nodes: &[IndexNode], is_indexed: bool) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        let places = self.places(handle, nodes);
        for node in nodes {
            let Some(block) = places.get(&node.block) else { continue };
            let mut bytes = self.read_block(*block)?;
            let kind = if node.level == 0 { IndexKind::Root } else { IndexKind::Node };
            if is_indexed {
                // `.`, `..`, and 8 bytes of information; or a record of 8 bytes.
                let start = if node.level == 0 { 2 * DOT_SIZE + 8 } else { HEADER_SIZE };
                let used = start + node.entries.len() * INDEX_ENTRY_SIZE;
                let end = start + usize::from(node.limit) * INDEX_ENTRY_SIZE;
                if let Some(unused) = bytes.get_mut(used..end) {
                    unused.fill(0);
                }
                if self.fs.volume.checksums {
                    htree::seal(&mut bytes, kind, handle.owner.seed);
                }
            } else {
                self.empty(&mut bytes, node.level == 0);
                if self.fs.volume.checksums {
                    dirent::seal(&mut bytes, handle.owner.seed);
                }
            }
            self.copy.write(self.byte_of(*block), &bytes)?;
        }
        Ok(())
    }

    /// Makes the node of an index a block without names except for `.` and `..`.
    fn empty(&self, bytes: &mut [u8], is_root: bool) {
        let tail = if self.fs.volume.checksums { TAIL_SIZE } else { 0 };
        let (start, end) = (if is_root { DOT_SIZE } else { 0 }, bytes.len() - tail);
        let used = if is_root { start + DOT_SIZE } else { HEADER_SIZE };
        write_rec_len(&mut bytes[start + 4..start + 6], end - start);
        bytes[used..].fill(0);
        if !is_root {
            bytes[..4].fill(0);
            bytes[6..HEADER_SIZE].fill(0);
        }
        if tail > 0 {
            dirent::write_tail(bytes);
        }
    }

    /// Returns the device blocks of the nodes of an index.
    fn places(&mut self, handle: &Handle, nodes: &[IndexNode]) -> HashMap<FileBlock, Block> {
        let wanted: HashSet<FileBlock> = nodes.iter().map(|node| node.block).collect();
        let mut places = HashMap::new();
        let walked = self.fs.walk_map(handle.ino(), &mut |entry| match entry {
            MapEntry::Extent { extent, .. } => {
                for nth in 0..extent.len {
                    let number = FileBlock(extent.block.0.saturating_add(nth));
                    if wanted.contains(&number) {
                        places.insert(number, extent.start.plus(nth.into()));
                    }
                }
            }
            MapEntry::Pointer { file, block } if wanted.contains(&file) => {
                places.insert(file, block);
            }
            _ => {}
        });
        if let Err(error) = walked {
            self.copy.remark(format_args!("the block map of directory {}", handle.ino()), &error);
        }
        places
    }
}

/// Returns a name that the directory does not have yet.
fn new_name(random: &mut RandomNames, len: usize, taken: &mut HashSet<Vec<u8>>) -> Option<Vec<u8>> {
    let mut tried = (0..TRIES).map(|_| random.name(len));
    let found = tried.find(|name| !taken.contains(name)).or_else(|| {
        // Few short names exist: all bytes are tried at the end.
        let mut all = (1..=u8::MAX).filter(|byte| !b"./".contains(byte)).map(|byte| {
            let mut name = vec![b'a'; len];
            name.iter_mut().take(1).for_each(|first| *first = byte);
            name
        });
        all.find(|name| !taken.contains(name))
    })?;
    taken.insert(found.clone());
    Some(found)
}

/// Clears the bytes of a block between names, and passes the offset of each record to replace and the length of its name.
fn clear_unused(bytes: &mut [u8], is_root: bool, each: &mut dyn FnMut(&mut [u8], usize, usize)) {
    let mut at = 0;
    while let Some(record) = record_at(bytes, at) {
        let (len, rec_len) = (record.name.len(), record.rec_len);
        let is_tail = record.inode == 0 && record.file_type == 0xde && rec_len == TAIL_SIZE;
        let is_kept =
            record.name == b"." || record.name == b".." || is_root && record.name == b"lost+found";
        if record.inode == 0 && !is_tail {
            bytes[at + 6..at + rec_len].fill(0);
        } else if record.inode != 0 {
            bytes[at + HEADER_SIZE + len..at + rec_len].fill(0);
            if !is_kept && len > 0 {
                each(bytes, at, len);
            }
        }
        at += rec_len;
    }
}

/// Returns the hashes that each leaf of an index may contain.
fn ranges(nodes: &[IndexNode]) -> HashMap<FileBlock, Range<u64>> {
    let by_block: HashMap<FileBlock, &IndexNode> =
        nodes.iter().map(|node| (node.block, node)).collect();
    let mut ranges = HashMap::new();
    let mut waiting: Vec<(&IndexNode, Range<u64>)> =
        nodes.iter().filter(|node| node.level == 0).map(|node| (node, 0..1 << 32)).collect();
    while let Some((node, range)) = waiting.pop() {
        // Bit 0 of a hash marks names with the hash of the previous leaf.
        let start = |at: usize| match at {
            0 => range.start,
            at => u64::from(node.entries[at].0 & !1),
        };
        for (at, (_, below)) in node.entries.iter().enumerate() {
            let end = if at + 1 < node.entries.len() { start(at + 1) } else { range.end };
            match by_block.get(below).filter(|below| below.level == node.level + 1) {
                Some(below) => waiting.push((below, start(at)..end)),
                None => drop(ranges.insert(*below, start(at)..end)),
            }
        }
    }
    ranges
}
