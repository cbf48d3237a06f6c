//! References to attribute blocks and to inodes that store values.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use vfs::check::Finding;

use super::codes::{XATTR_REFERENCES, XATTR_VALUE, XATTR_VALUE_REFERENCES};
use super::contents::Claimed;
use super::context::{Context, InodeUnderCheck};
use super::mapping::{FileExtent, MapVisitor, walk};
use crate::format::address::Block;
use crate::format::xattr::{self, VALUE_SIZE_MAX};

/// An inode that stores a value.
#[derive(Default)]
struct Holder {
    /// Number of references found.
    counted: u64,
    /// Its stored reference count, and whether its hash matches its contents.
    stored: Option<(u64, bool)>,
    /// True if it has neither hash nor count, but names the only inode that refers to it.
    is_plain: bool,
}

/// References to shared attribute blocks and to value inodes.
#[derive(Default)]
pub(super) struct References {
    /// By block: its reference count minus one, minus the further references found.
    blocks: Mutex<HashMap<Block, i64>>,
    values: Mutex<HashMap<u32, Holder>>,
}

impl References {
    /// Records the reference count of a block when it is found first.
    pub(super) fn own(&self, block: Block, count: u32) {
        if count != 1 {
            *self.blocks.lock().entry(block).or_default() += i64::from(count) - 1;
        }
    }

    /// Records another inode that shares a block.
    pub(super) fn share(&self, block: Block) {
        *self.blocks.lock().entry(block).or_default() -= 1;
    }

    /// Records an attribute whose value is in an inode.
    pub(super) fn value(&self, ino: u32, is_plain: bool) {
        let mut values = self.values.lock();
        let holder = values.entry(ino).or_default();
        holder.counted += 1;
        holder.is_plain |= is_plain;
    }
}

/// Runs of a file. Map nodes are read once, so that a map with repeated nodes needs neither much time nor much memory.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) all: Vec<FileExtent>,
    met: HashSet<Block>,
}

impl MapVisitor for Runs {
    fn run(&mut self, run: FileExtent) {
        self.all.push(run);
    }

    fn node(&mut self, block: Block) -> bool {
        self.met.insert(block)
    }
}

impl Context<'_> {
    /// Returns the contents of an inode with at most `max` bytes. Holes read as zeros.
    pub(super) fn contents(&self, subject: &InodeUnderCheck, max: u64) -> Option<Vec<u8>> {
        let size = subject.inode.size();
        if size > max {
            return None;
        }
        let log = self.geometry().block_size_log;
        let mut runs = Runs::default();
        walk(self, subject, &mut runs);
        let mut bytes = vec![0; size.next_multiple_of(1 << log) as usize];
        for run in runs.all.iter().filter(|run| !run.unwritten) {
            let start = (run.first as usize) << log;
            let end = (start + ((run.len as usize) << log)).min(bytes.len());
            if start < end && !self.read(run.start, &mut bytes[start..end]) {
                return None;
            }
        }
        bytes.truncate(size as usize);
        Some(bytes)
    }

    /// Checks an inode that stores a value: its hash, and its reference count.
    pub(super) fn check_value(&self, subject: &InodeUnderCheck, claimed: &Claimed) {
        let is_sound = !claimed.is_cut && {
            let value = self.contents(subject, VALUE_SIZE_MAX.into());
            let hash = value.map(|value| xattr::value_hash(self.params.sb.checksum_seed, &value));
            hash == Some(subject.inode.value_hash())
        };
        let stored = Some((subject.inode.value_refcount(), is_sound));
        self.references.values.lock().entry(subject.ino).or_default().stored = stored;
    }

    /// Compares the counted references with the stored counts, after all inodes were read.
    pub(super) fn check_references(&self) {
        let blocks = std::mem::take(&mut *self.references.blocks.lock());
        for (block, left) in blocks.into_iter().filter(|(_, left)| *left != 0) {
            let detail = format!("its count is {} too high", left);
            let finding = Finding::new(XATTR_REFERENCES).at_block(block.0).detail(detail);
            let stored = self.block(block).map_or(0, |bytes| xattr::block_refcount(&bytes).into());
            self.tell(finding.mismatch(stored - left, stored));
        }
        let values = std::mem::take(&mut *self.references.values.lock());
        for (ino, holder) in values {
            let Some((count, is_sound)) = holder.stored.filter(|_| !holder.is_plain) else {
                continue;
            };
            if !is_sound {
                let finding = Finding::new(XATTR_VALUE).of_inode(ino.into());
                self.tell(finding.detail("the hash of the contents is wrong"));
            }
            if count != holder.counted {
                let finding = Finding::new(XATTR_VALUE_REFERENCES).of_inode(ino.into());
                self.tell(finding.mismatch(holder.counted, count));
            }
        }
    }
}
