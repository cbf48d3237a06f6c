//! `htree_dump` and `dx_hash`: the index of a directory and its hashes.

use std::fmt::Write;

use ext4::Ext4;
use ext4::debug::{DirectoryPart, IndexNode};
use ext4::format::address::{Block, FileBlock};
use ext4::format::dirent;
use ext4::format::hash::{HashVersion, NameHasher};
use std::collections::HashMap;
use vfs::{FileSystem, FileType, Ino};

use super::listing::printable;
use super::phrases::words;
use super::request::Request;
use super::session::DebugSession;
use crate::dumpe2fs::HASHES;
use crate::failure::Failure;
use crate::invoked::{say, say_all};

/// Directory blocks with entries: device block and bytes.
type Leaves = HashMap<u32, (Block, Vec<u8>)>;

/// `htree_dump DIR`.
pub(super) fn dump(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let dir = session.ino(path)?;
    let fs = session.fs()?;
    let is_dir = fs.attributes(dir).is_ok_and(|found| found.file_type == FileType::Directory);
    if !is_dir {
        return Err(request.failed("Not a directory"));
    }
    let nodes = fs.index_nodes(dir).map_err(|e| request.failed(words(&e)))?;
    let Some(root) = nodes.first() else {
        return Err(request.failed("Not a hash-indexed directory"));
    };
    let mut leaves = Leaves::new();
    let read = fs.directory_parts(dir, &mut |part| {
        if let DirectoryPart::Block(FileBlock(file), place, bytes) = part {
            leaves.insert(file, (place, bytes.to_vec()));
        }
    });
    read.map_err(|e| request.failed(words(&e)))?;
    let mut out = String::from("Root node dump:\n\t Reserved zero: 0\n");
    let _ = writeln!(out, "\t Hash Version: {}\n\t Info length: 8", root.hash_version);
    let _ = writeln!(out, "\t Indirect levels: {}\n\t Flags: 0", root.levels);
    let dump = Dump { fs, nodes: &nodes, leaves: &leaves };
    dump.node(&mut out, root);
    out.push_str("---------------------\n");
    say_all(&out);
    Ok(())
}

struct Dump<'d> {
    fs: &'d Ext4,
    nodes: &'d [IndexNode],
    leaves: &'d Leaves,
}

impl Dump<'_> {
    /// Adds a node and the children of its entries. The index has at most three levels.
    fn node(&self, out: &mut String, node: &IndexNode) {
        let count = node.entries.len();
        let _ = writeln!(out, "Number of entries (count): {count}");
        let _ = writeln!(out, "Number of entries (limit): {}", node.limit);
        if self.fs.superblock().features.metadata_csum() {
            let _ = writeln!(out, "Checksum: {:#010x}", node.checksum);
        }
        let line = |out: &mut String, at: usize, (hash, block): (u32, FileBlock)| {
            let _ = writeln!(out, "Entry #{at}: Hash {hash:#010x}, block {block}");
        };
        node.entries.iter().enumerate().for_each(|(at, entry)| line(out, at, *entry));
        out.push('\n');
        for (at, entry) in node.entries.iter().enumerate() {
            line(out, at, *entry);
            let below =
                self.nodes.iter().find(|below| below.block == entry.1 && below.level > node.level);
            match below {
                Some(below) => self.node(out, below),
                None => self.leaf(out, entry.1, node.hash_version),
            }
        }
    }

    fn leaf(&self, out: &mut String, block: FileBlock, version: u8) {
        let Some((place, bytes)) = self.leaves.get(&block.0) else { return };
        let _ = writeln!(out, "Reading directory block {block}, phys {place}");
        let mut line = 0;
        for record in dirent::entries(bytes) {
            let (major, minor) = self.fs.hash_of_name(version, record.name).unwrap_or_default();
            let (ino, len) = (record.inode, record.rec_len);
            let text =
                format!("{ino} {major:#010x}-{minor:08x} ({len}) {}   ", printable(record.name));
            if line + text.len() > 80 {
                out.push('\n');
                line = 0;
            }
            line += text.len();
            out.push_str(&text);
        }
        out.push('\n');
        let tail = bytes.len().checked_sub(4).and_then(|at| bytes.get(at..)?.first_chunk::<4>());
        if let (true, Some(tail)) = (self.fs.superblock().features.metadata_csum(), tail) {
            let _ = writeln!(out, "leaf block checksum: {:#010x}  ", u32::from_le_bytes(*tail));
        }
    }
}

/// `dx_hash [-h HASH] [-s SEED] NAME`. The default is the legacy hash.
pub(super) fn hash(_: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let (options, rest) = request.options("c", "hse")?;
    let &[name] = &*rest else { return Err(request.wrong_words()) };
    let (mut version, mut seed) = (0_u8, [0; 16]);
    for (letter, value) in options {
        let value = request.text(value)?;
        match letter {
            'h' => {
                let found = (0..).zip(HASHES).find(|(_, name)| *name == value);
                version = found
                    .ok_or_else(|| request.failed(format_args!("invalid hash algorithm: {value}")))?
                    .0;
            }
            's' => {
                let parsed = uuid::Uuid::try_parse(value);
                seed = parsed
                    .map_err(|_| request.failed(format_args!("Invalid UUID format: {value}")))?
                    .into_bytes();
            }
            _ => {
                return Err(request.refused(
                    &format!("-{letter}"),
                    "hashes of case-insensitive names are supported only with the feature casefold",
                ));
            }
        }
    }
    let Some((function, unsigned)) = HashVersion::from_raw(version) else {
        return Err(request.refused("siphash", "its key is not in the image"));
    };
    let word = |at: usize| u32::from_le_bytes([seed[at], seed[at + 1], seed[at + 2], seed[at + 3]]);
    let seed = [word(0), word(4), word(8), word(12)];
    let hash = NameHasher { version: function, unsigned, seed }.hash(name);
    let (major, minor) = (hash.major, hash.minor);
    say(format_args!("Hash of {} is {major:#x} (minor {minor:#x})", printable(name)));
    Ok(())
}

/// Returns whether any directory has an index.
pub(super) fn has_index(fs: &Ext4) -> bool {
    (1..=fs.superblock().inodes_count).map(|ino| Ino(ino.into())).any(|ino| {
        let slot = fs.inode_slot(ino).unwrap_or_default();
        let inode = ext4::format::inode::Inode::from_slot(&slot);
        let is_candidate = inode.is_dir() && inode.links_count() > 0;
        is_candidate && fs.index_nodes(ino).is_ok_and(|nodes| !nodes.is_empty())
    })
}
