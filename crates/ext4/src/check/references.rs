//! Who refers to blocks of attributes and to inodes that hold values.

use std::collections::{HashMap, HashSet};

use check::Finding;
use parking_lot::Mutex;

use super::codes::{XATTR_REFERENCES, XATTR_VALUE, XATTR_VALUE_REFERENCES};
use super::contents::Claimed;
use super::context::{Context, Subject};
use super::mapping::{Blocks, Run, walk};
use crate::format::address::Block;
use crate::format::xattr::{self, VALUE_SIZE_MAX};

/// An inode that holds a value.
#[derive(Default)]
struct Holder {
    /// References that were met.
    counted: u64,
    /// Those that it says there are, and whether its hash is that of its contents.
    stored: Option<(u64, bool)>,
    /// Whether it has neither hash nor count, but names the one inode that refers to it.
    is_plain: bool,
}

/// What refers to attributes, as far as more than one thing does.
#[derive(Default)]
pub(super) struct References {
    /// By block: what its count says beside the first reference, less the others that were met.
    blocks: Mutex<HashMap<Block, i64>>,
    values: Mutex<HashMap<u32, Holder>>,
}

impl References {
    /// Notes how many inodes a block says to be shared by, when it is met first.
    pub(super) fn own(&self, block: Block, count: u32) {
        if count != 1 {
            *self.blocks.lock().entry(block).or_default() += i64::from(count) - 1;
        }
    }

    /// Notes another inode that shares a block.
    pub(super) fn share(&self, block: Block) {
        *self.blocks.lock().entry(block).or_default() -= 1;
    }

    /// Notes an attribute whose value is in an inode.
    pub(super) fn value(&self, ino: u32, is_plain: bool) {
        let mut values = self.values.lock();
        let holder = values.entry(ino).or_default();
        holder.counted += 1;
        holder.is_plain |= is_plain;
    }
}

/// The runs of a file. Nodes of its map are read once, so that a map that repeats one neither takes long nor much
/// memory.
#[derive(Default)]
pub(super) struct Runs {
    pub(super) all: Vec<Run>,
    met: HashSet<Block>,
}

impl Blocks for Runs {
    fn run(&mut self, run: Run) {
        self.all.push(run);
    }

    fn node(&mut self, block: Block) -> bool {
        self.met.insert(block)
    }
}

impl Context<'_> {
    /// The contents of an inode, of which there are at most `max` bytes; holes read as zeros.
    pub(super) fn contents(&self, subject: &Subject, max: u64) -> Option<Vec<u8>> {
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

    /// Checks an inode that holds a value: its hash, and how many references it says there are.
    pub(super) fn check_value(&self, subject: &Subject, claimed: &Claimed) {
        let is_sound = !claimed.is_cut && {
            let value = self.contents(subject, VALUE_SIZE_MAX.into());
            let hash = value.map(|value| xattr::value_hash(self.params.sb.checksum_seed, &value));
            hash == Some(subject.inode.value_hash())
        };
        let stored = Some((subject.inode.value_refcount(), is_sound));
        self.references.values.lock().entry(subject.ino).or_default().stored = stored;
    }

    /// Compares what was counted with what is said, once all inodes were met.
    pub(super) fn check_references(&self) {
        let blocks = std::mem::take(&mut *self.references.blocks.lock());
        for (block, left) in blocks.into_iter().filter(|(_, left)| *left != 0) {
            let detail = format!("it says {} more than there are", left);
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
                self.tell(finding.detail("the contents do not have the hash that they must have"));
            }
            if count != holder.counted {
                let finding = Finding::new(XATTR_VALUE_REFERENCES).of_inode(ino.into());
                self.tell(finding.mismatch(holder.counted, count));
            }
        }
    }
}
