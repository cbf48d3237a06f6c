//! Checks the hash index of a directory, and its free-space index.

use super::Check;
use super::blocks::DataBlockSummary;
use crate::check::codes;
use crate::format::bytes::be16;
use crate::format::dir::leaf::{self, LeafKind, Table};
use crate::format::dir::{DirLayout, free};

/// A block of the hash index, without its entries.
#[derive(Debug)]
struct Summary {
    /// The number of its block in the hash index.
    number: u64,
    kind: LeafKind,
    level: u16,
    siblings: (u32, u32),
    first: u32,
    last: u32,
    count: usize,
    /// Addresses of the first and last entry that are not stale.
    ends: Option<(u32, u32)>,
    /// For a node: last hash and logical block of each child.
    children: Vec<(u32, u32)>,
}

pub(super) struct Index<'i> {
    check: &'i Check<'i>,
    /// Sum over the entries of leaves.
    entries: DataBlockSummary,
    blocks: Vec<Summary>,
    /// The bests array, if there is a single leaf.
    leaf_bests: Option<Vec<u16>>,
    /// The values of the free-space index, by its blocks.
    free_bests: Vec<(u64, Vec<u16>)>,
    suspects: Vec<u32>,
    pub(super) is_broken: bool,
}

impl<'i> Index<'i> {
    pub(super) const fn new(check: &'i Check<'i>) -> Self {
        Self {
            check,
            entries: DataBlockSummary { sum: 0, count: 0, bests: Vec::new(), is_broken: false },
            blocks: Vec::new(),
            leaf_bests: None,
            free_bests: Vec::new(),
            suspects: Vec::new(),
            is_broken: false,
        }
    }

    const fn layout(&self) -> &DirLayout {
        &self.check.inodes.layout
    }

    /// Adds the entries of a table.
    fn rows(&mut self, bytes: &[u8], table: &Table) {
        let mut last: Option<(u32, u32)> = None;
        for entry in leaf::live(bytes, table) {
            self.entries.add(entry.hash, entry.address);
            if let Some((_, address)) = last.filter(|(hash, _)| *hash == entry.hash) {
                self.suspects.extend([address, entry.address]);
            }
            last = Some((entry.hash, entry.address));
        }
    }

    pub(super) fn block_form(&mut self, bytes: &[u8], table: &Table) {
        self.rows(bytes, table);
    }

    pub(super) fn leaf(&mut self, number: u64, bytes: &[u8]) {
        let layout = *self.layout();
        let Some(kind) = leaf::kind(&layout, bytes) else { return };
        let table = leaf::table(&layout, bytes);
        let mut summary = Summary {
            number,
            kind,
            level: 0,
            siblings: leaf::siblings(bytes),
            first: if table.count > 0 { table.entry(bytes, 0).hash } else { 0 },
            last: table.last_hash(bytes),
            count: table.count,
            ends: None,
            children: Vec::new(),
        };
        if kind == LeafKind::Node {
            summary.level = leaf::level(&layout, bytes);
            let rows = (0..table.count).map(|at| table.entry(bytes, at));
            summary.children = rows.map(|entry| (entry.hash, entry.address)).collect();
        } else {
            let mut live = leaf::live(bytes, &table).map(|entry| entry.address);
            summary.ends = live.next().map(|first| (first, live.last().unwrap_or(first)));
            self.rows(bytes, &table);
        }
        if kind == LeafKind::Single {
            let count = leaf::bests_count(&layout, bytes);
            let start = leaf::bests_start(&layout, count);
            let bests = (0..count).map(|nth| be16(bytes, start + nth * 2)).collect();
            self.leaf_bests = Some(bests);
        }
        self.blocks.push(summary);
    }

    pub(super) fn free(&mut self, number: u64, bytes: &[u8]) {
        let slots = free::slots(self.layout(), bytes);
        let slots = slots.iter().map(|slot| u16::from_be_bytes(*slot)).collect();
        self.free_bests.push((number, slots));
    }

    /// Returns the addresses of entries that share their hash with another entry.
    pub(super) fn into_suspects(self) -> Vec<u32> {
        self.suspects
    }

    fn fault(&self, detail: impl Into<String>) -> vfs::check::Finding {
        self.check.fault(codes::DIR_LEAF, detail)
    }

    /// Checks the consistency of all blocks.
    pub(super) fn finish(&mut self, entries: &DataBlockSummary, block_form: bool) {
        if (self.entries.sum, self.entries.count) != (entries.sum, entries.count) {
            let shown = |e: &DataBlockSummary| format!("{} entries (sum {:016x})", e.count, e.sum);
            let finding = self.check.fault(codes::DIR_HASH, "entries of the hash index");
            self.check.found(finding.mismatch(shown(entries), shown(&self.entries)));
        }
        if block_form {
            if !self.blocks.is_empty() || !self.free_bests.is_empty() {
                self.check.found(self.fault("index blocks in block form"));
            }
            return;
        }
        let mut suspects = std::mem::take(&mut self.suspects);
        self.tree(&mut suspects);
        self.suspects = suspects;
        self.bests(&entries.bests);
    }

    fn bests(&self, found: &[u16]) {
        let fault = |detail: String| self.check.fault(codes::DIR_BESTS, detail);
        if let Some(bests) = &self.leaf_bests {
            if bests != found {
                let at = bests.iter().zip(found).position(|(a, b)| a != b);
                let at = at.unwrap_or_else(|| bests.len().min(found.len()));
                let finding = fault(format!("free space of data block {at} in the leaf"));
                self.check.found(finding.mismatch(shown(found.get(at)), shown(bests.get(at))));
            }
            if !self.free_bests.is_empty() {
                self.check.found(fault("a free space index with a single leaf".to_owned()));
            }
            return;
        }
        let capacity = self.layout().free_capacity();
        for (number, slots) in &self.free_bests {
            let first = (*number as usize).saturating_mul(capacity);
            let there = found.get(first..).unwrap_or_default();
            let there = &there[..there.len().min(capacity)];
            let wrong = (0..slots.len().max(there.len())).find(|at| {
                let slot = slots.get(*at).copied().unwrap_or(free::NO_BLOCK);
                slot != there.get(*at).copied().unwrap_or(free::NO_BLOCK)
            });
            if let Some(at) = wrong {
                let finding = fault(format!("free space of data block {}", first + at));
                self.check.found(finding.mismatch(shown(there.get(at)), shown(slots.get(at))));
            }
        }
        let described =
            |number: u64| self.free_bests.binary_search_by_key(&number, |(at, _)| *at).is_ok();
        for (number, there) in found.chunks(capacity).enumerate() {
            let is_needed = there.iter().any(|best| *best != free::NO_BLOCK);
            if is_needed && !described(number as u64) {
                let finding = fault(format!("block {number} of the free space index"));
                self.check.found(finding.mismatch("a block", "none"));
            }
        }
    }

    fn find(&self, logical: u32) -> Option<usize> {
        let per = u64::from(self.layout().blocks());
        let first = self.layout().leaf_first().0;
        let number = u64::from(logical).checked_sub(first).filter(|at| at.is_multiple_of(per))?;
        self.blocks.binary_search_by_key(&(number / per), |block| block.number).ok()
    }

    fn logical(&self, block: &Summary) -> u32 {
        let layout = self.layout();
        (layout.leaf_first().0 + block.number * u64::from(layout.blocks())) as u32
    }

    /// Checks the tree of nodes and leaves: every block must be reached exactly once.
    fn tree(&self, suspects: &mut Vec<u32>) {
        let Some(root) = self.blocks.first().filter(|block| block.number == 0) else {
            return self.check.found(self.fault("it has no root"));
        };
        if root.kind == LeafKind::Single || root.level == 0 {
            if self.blocks.len() > 1 {
                self.check.found(self.fault("other blocks than the only leaf"));
            }
            if root.siblings != (0, 0) {
                self.check.found(self.fault("siblings of the only leaf"));
            }
            return;
        }
        if root.siblings != (0, 0) {
            self.check.found(self.fault("siblings of the root"));
        }
        let mut row = vec![0];
        let mut visited = 1;
        for level in (0..root.level).rev() {
            let mut below = Vec::new();
            for at in row {
                let node = &self.blocks[at];
                for (hash, child) in &node.children {
                    match self.find(*child) {
                        Some(found) if self.is_child(found, level, *hash) => below.push(found),
                        Some(_) => return,
                        None => {
                            let finding = self.fault("child of a node");
                            return self.check.found(finding.mismatch("a block", child));
                        }
                    }
                }
                if below.len() > self.blocks.len() {
                    return self.check.found(self.fault("a block with two pointers"));
                }
            }
            visited += below.len();
            self.row(&below, suspects);
            row = below;
        }
        if visited != self.blocks.len() {
            let finding = self.fault("blocks that the tree points to");
            self.check.found(finding.mismatch(self.blocks.len(), visited));
        }
    }

    fn is_child(&self, at: usize, level: u16, hash: u32) -> bool {
        let child = &self.blocks[at];
        let is_level = child.level == level
            && (level > 0) == (child.kind == LeafKind::Node)
            && child.kind != LeafKind::Single;
        if !is_level {
            let finding = self.fault(format!("level of block {}", self.logical(child)));
            self.check.found(finding.mismatch(level, child.level));
        } else if child.last != hash {
            let detail = format!("hash that the node above has for block {}", self.logical(child));
            let (expected, found) = (format!("{:#x}", child.last), format!("{hash:#x}"));
            self.check.found(self.fault(detail).mismatch(expected, found));
        }
        is_level
    }

    /// Checks a level: siblings must match, and hashes must ascend.
    fn row(&self, row: &[usize], suspects: &mut Vec<u32>) {
        let name = |at: Option<&usize>| at.map_or(0, |at| self.logical(&self.blocks[*at]));
        for (nth, at) in row.iter().enumerate() {
            let block = &self.blocks[*at];
            let before = nth.checked_sub(1).and_then(|nth| row.get(nth));
            let siblings = (name(before), name(row.get(nth + 1)));
            if siblings != block.siblings {
                let finding = self.fault(format!("siblings of block {}", self.logical(block)));
                let (expected, found) = (format!("{siblings:?}"), format!("{:?}", block.siblings));
                self.check.found(finding.mismatch(expected, found));
            }
            let last = before.map_or(0, |at| self.blocks[*at].last);
            let ends = before.and_then(|at| self.blocks[*at].ends).zip(block.ends);
            if let Some((before, here)) = ends.filter(|_| last == block.first) {
                suspects.extend([before.1, here.0]);
            }
            if block.count > 0 && block.first < last {
                let finding = self.fault(format!("hashes of block {}", self.logical(block)));
                self.check.found(finding.mismatch(format!("{last:#x} or more"), block.first));
            }
        }
    }
}

fn shown(best: Option<&u16>) -> String {
    match best {
        None | Some(&free::NO_BLOCK) => "none".to_owned(),
        Some(best) => best.to_string(),
    }
}
