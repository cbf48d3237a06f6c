//! Directories: random names of the same lengths.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use vfs::Result;

use super::ObfuscatedCopy;
use crate::debug::{DirectoryPart, IndexNode, MapEntry};
use crate::format::address::{Block, FileBlock};
use crate::format::dirent::{self, HEADER_SIZE, TAIL_SIZE, record_at, write_rec_len};
use crate::format::htree::{self, IndexKind};
use crate::format::inode::{ROOT_INO, flags};
use crate::inode::Handle;

/// Number of random names that are tried without an index.
const TRIES: usize = 200;
/// Number of random names that are tried for each leaf of an index, and the maximum.
const TRIES_PER_LEAF: usize = 30;
const TRIES_MAX: usize = 100_000;
/// Size of the records of `.` and `..` in the root of an index, in bytes.
const DOT_SIZE: usize = 12;
/// Size of an entry of an index, in bytes.
const INDEX_ENTRY_SIZE: usize = 8;

/// Names of a directory in the copy, and the rule for further ones.
struct NewNames {
    taken: HashSet<Vec<u8>>,
    /// Hash version of the index.
    version: Option<u8>,
    tries: usize,
    /// The root keeps `lost+found`, which e2fsck expects.
    is_root: bool,
}

/// Contents of a leaf of an index: its number, its device block, its bytes.
type Leaf = (FileBlock, Block, Vec<u8>);

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
        // The root of an index has no names but `.` and `..`.
        leaves.retain(|(number, ..)| nodes.is_empty() || number.0 != 0);
        let ranges = ranges(&nodes);
        let mut names = NewNames {
            taken: HashSet::new(),
            version: nodes.first().map(|node| node.hash_version),
            tries: TRIES + (TRIES_PER_LEAF * ranges.len()).min(TRIES_MAX),
            is_root: ino == ROOT_INO,
        };
        let is_indexed =
            !nodes.is_empty() && self.leaves(handle, &leaves, Some(&ranges), &mut names)?;
        if !is_indexed {
            (names.taken, names.version, names.tries) = (HashSet::new(), None, TRIES);
            self.leaves(handle, &leaves, None, &mut names)?;
        }
        self.nodes(handle, &nodes, is_indexed)?;
        Ok(is_indexed)
    }

    /// Writes leaves with new names. Returns false if no name has a hash in `ranges`.
    fn leaves(
        &mut self,
        handle: &Handle,
        leaves: &[Leaf],
        ranges: Option<&HashMap<FileBlock, Range<u64>>>,
        names: &mut NewNames,
    ) -> Result<bool> {
        let mut new = Vec::new();
        for (number, block, bytes) in leaves {
            let range = match ranges {
                Some(ranges) => match ranges.get(number) {
                    Some(range) => range.clone(),
                    None => return Ok(false),
                },
                None => 0..1 << 32,
            };
            let mut bytes = bytes.clone();
            if !self.entries(&mut bytes, &range, names) && ranges.is_some() {
                return Ok(false);
            }
            new.push((*block, bytes));
        }
        for (block, mut bytes) in new {
            if self.fs.volume.checksums {
                dirent::seal(&mut bytes, handle.owner.seed);
            }
            self.copy.write(self.byte_of(block), &bytes)?;
        }
        Ok(true)
    }

    /// Replaces the names of a directory in its inode.
    pub(super) fn inline_entries(&mut self, handle: &Handle, bytes: &mut [u8]) {
        let is_root = handle.ino() == ROOT_INO;
        let mut names = NewNames { taken: HashSet::new(), version: None, tries: TRIES, is_root };
        self.entries(bytes, &(0..1 << 32), &mut names);
    }

    /// Replaces all names of a block, and clears the bytes between records. Returns false if one gets no name.
    fn entries(&mut self, bytes: &mut [u8], range: &Range<u64>, names: &mut NewNames) -> bool {
        let (mut at, mut is_done) = (0, true);
        while let Some(record) = record_at(bytes, at) {
            let (len, rec_len) = (record.name.len(), record.rec_len);
            let is_tail = record.inode == 0 && record.file_type == 0xde && rec_len == TAIL_SIZE;
            let is_kept = record.name == b"."
                || record.name == b".."
                || names.is_root && record.name == b"lost+found";
            if record.inode == 0 && !is_tail {
                bytes[at + 6..at + rec_len].fill(0);
            } else if record.inode != 0 {
                if !is_kept {
                    match self.name(len, range, names) {
                        Some(name) => bytes[at + HEADER_SIZE..][..len].copy_from_slice(&name),
                        None => is_done = false,
                    }
                }
                bytes[at + HEADER_SIZE + len..at + rec_len].fill(0);
            }
            at += rec_len;
        }
        is_done
    }

    /// Returns a name that the directory does not have yet, with a hash in `range`.
    fn name(&mut self, len: usize, range: &Range<u64>, names: &mut NewNames) -> Option<Vec<u8>> {
        let is_right = |name: &[u8]| match names.version {
            Some(version) => {
                let hash = self.fs.hash_of_name(version, name);
                hash.is_some_and(|(major, _)| range.contains(&major.into()))
            }
            None => true,
        };
        let mut random = self.random.clone();
        let mut tried = (0..names.tries).map(|_| random.name(len));
        let found = tried.find(|name| !names.taken.contains(name) && is_right(name));
        drop(tried);
        // Few short names exist: all bytes are tried at the end.
        let found = found.or_else(|| {
            let rest = vec![b'a'; len.saturating_sub(1)];
            let mut all = (1..=u8::MAX).filter(|byte| !b"./".contains(byte)).map(|byte| {
                let mut name = rest.clone();
                name.insert(0, byte);
                name
            });
            all.find(|name| !names.taken.contains(name) && is_right(name))
        })?;
        self.random = random;
        names.taken.insert(found.clone());
        Some(found)
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
