//! Walks trees of groups and of forks. Every block is read once, in the order of keys.

use engine::Changed;
use vfs::check::Finding;

use super::codes::{self, TreeCodes};
use super::context::Context;
use crate::btree::Tree;
use crate::format::address::{AgBlock, AgNumber, Block, FsBlock};
use crate::format::btree::{Area, NO_SIBLING, Side};
use crate::format::bytes::be64;
use crate::format::checksum;

/// Distance from the end of the sibling pointers to `bb_lsn`, in bytes.
const LSN_BEHIND_SIBLINGS: usize = 8;

/// Callbacks of a walk.
pub(super) trait Visitor<T: Tree> {
    /// Called with a block of the tree. Returns whether to visit it: false if it was met before.
    fn block(&mut self, block: Block) -> bool;
    /// Called with a record, in the order of keys.
    fn record(&mut self, record: T::Record);
}

/// The owner of a tree.
#[derive(Clone, Copy, Debug)]
pub(super) enum TreeOwner {
    Group(AgNumber),
    Inode(u64),
}

/// Summary of a tree.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TreeSummary {
    pub(super) blocks: u64,
    /// True if some of it could not be visited.
    pub(super) is_broken: bool,
}

struct Level<K> {
    buffer: Vec<u8>,
    /// The block visited last, as in pointers, and its right sibling.
    last: Option<(u64, u64)>,
    key: Option<K>,
}

/// Bounds of a block from the node above.
struct Above<K> {
    low: K,
    high: Option<K>,
}

pub(super) struct TreeWalk<'w, T: Tree, V> {
    ctx: &'w Context<'w>,
    codes: TreeCodes,
    owner: TreeOwner,
    visitor: &'w mut V,
    levels: Vec<Level<T::Key>>,
    found: TreeSummary,
}

impl<'w, T: Tree, V: Visitor<T>> TreeWalk<'w, T, V> {
    pub(super) fn new(
        ctx: &'w Context<'w>,
        codes: TreeCodes,
        owner: TreeOwner,
        visitor: &'w mut V,
    ) -> Self {
        Self { ctx, codes, owner, visitor, levels: Vec::new(), found: TreeSummary::default() }
    }

    /// Walks the tree of a group, given its root block and its levels.
    pub(super) fn of_group(mut self, root: AgBlock, levels: u32) -> TreeSummary {
        self.set_levels(levels as usize);
        if let Some(level) = self.levels.len().checked_sub(1) {
            self.visit(root.0.into(), level, None, true);
        }
        self.finish()
    }

    /// Walks the tree of a fork, whose root is in the inode and was verified.
    pub(super) fn of_fork(mut self, fork: &[u8]) -> TreeSummary {
        let area = T::SHAPE.root_area_of(fork);
        let level = usize::from(area.level(fork));
        self.set_levels(level);
        if level > 0 {
            self.children(&area, fork, level);
        } else {
            (0..area.count(fork))
                .for_each(|at| self.visitor.record(T::record(area.entry(fork, at))));
        }
        self.finish()
    }

    fn set_levels(&mut self, levels: usize) {
        let size = self.ctx.geometry.block_size();
        let level = || Level { buffer: vec![0; size], last: None, key: None };
        self.levels = std::iter::repeat_with(level).take(levels).collect();
    }

    fn finish(mut self) -> TreeSummary {
        for level in 0..self.levels.len() {
            self.check_left(level, NO_SIBLING, NO_SIBLING);
        }
        self.found
    }

    fn place(&self, pointer: u64) -> Option<Block> {
        let geometry = &self.ctx.geometry;
        match self.owner {
            TreeOwner::Group(ag) => {
                let is_there = pointer > 0 && pointer < geometry.ag_len(ag).into();
                is_there.then(|| geometry.block_of(ag, AgBlock(pointer as u32)))
            }
            TreeOwner::Inode(_) => {
                let block = FsBlock(pointer);
                geometry.contains(block, 1).then(|| geometry.device_block(block))
            }
        }
    }

    fn finding(&self, code: &'static vfs::check::Code) -> Finding {
        match self.owner {
            TreeOwner::Group(ag) => Finding::new(code).in_group(ag.0),
            TreeOwner::Inode(ino) => Finding::new(code).of_inode(ino),
        }
    }

    fn broken(&mut self, finding: Finding) {
        self.ctx.found(finding);
        self.ctx.note_gap();
        self.found.is_broken = true;
    }

    /// Reads and checks a block at `level`.
    fn visit(&mut self, pointer: u64, level: usize, above: Option<Above<T::Key>>, is_alone: bool) {
        let Some(block) = self.place(pointer) else {
            let finding = self.finding(self.codes.block).detail("a null pointer");
            return self.broken(finding.mismatch("a block", pointer));
        };
        if !self.visitor.block(block) {
            // Something else claims it, which is reported. The blocks below are unknown.
            self.ctx.note_gap();
            self.found.is_broken = true;
            return;
        }
        self.found.blocks += 1;
        let mut data = std::mem::take(&mut self.levels[level].buffer);
        if self.ctx.read(block, &mut data) {
            self.look_into(pointer, block, level, above, is_alone, &data);
        } else {
            self.found.is_broken = true;
        }
        self.levels[level].buffer = data;
    }

    fn look_into(
        &mut self,
        pointer: u64,
        block: Block,
        level: usize,
        above: Option<Above<T::Key>>,
        is_alone: bool,
        data: &[u8],
    ) {
        let geometry = &self.ctx.geometry;
        if geometry.features.crc()
            && let Err(damage) = checksum::check(T::SHAPE.name, data, T::SHAPE.crc_offset())
        {
            let finding = Finding::of_damage(self.codes.checksum, &damage).at_block(block.0);
            self.ctx.found(self.placed(finding));
        }
        if geometry.features.crc() {
            let at = T::SHAPE.sibling_range(Side::Right).end + LSN_BEHIND_SIBLINGS;
            ctx_lsn(self, block, be64(data, at));
        }
        let owner = match self.owner {
            TreeOwner::Group(ag) => ag.0.into(),
            TreeOwner::Inode(ino) => ino,
        };
        let whole = Changed::whole(data.len());
        if let Err(damage) = T::SHAPE.verify_structure(geometry, (block, owner), whole, data) {
            let is_record = ["record", "order"].iter().any(|p| damage.problem().starts_with(p));
            let code = if is_record { self.codes.records } else { self.codes.block };
            let finding = self.placed(Finding::of_damage(code, &damage).at_block(block.0));
            return self.broken(finding);
        }
        let found = usize::from(data[4]) << 8 | usize::from(data[5]);
        if found != level {
            let finding = self.finding(self.codes.block).at_block(block.0).field("bb_level");
            return self.broken(finding.mismatch(level, found));
        }
        self.check_left(level, pointer, T::SHAPE.sibling(data, Side::Left));
        self.levels[level].last = Some((pointer, T::SHAPE.sibling(data, Side::Right)));
        let area =
            if level == 0 { T::SHAPE.leaf_area(geometry) } else { T::SHAPE.node_area(geometry) };
        if !is_alone && area.count(data) < area.min() {
            let finding = self.finding(self.codes.records).at_block(block.0).field("bb_numrecs");
            self.ctx
                .found(finding.mismatch(format_args!("{} or more", area.min()), area.count(data)));
        }
        if let Some(above) = above {
            self.check_keys(&area, block, level, data, &above);
        }
        if level == 0 {
            self.records(&area, block, data);
        } else {
            self.children(&area, data, level);
        }
    }

    fn placed(&self, finding: Finding) -> Finding {
        match self.owner {
            TreeOwner::Group(ag) => finding.in_group(ag.0),
            TreeOwner::Inode(ino) => finding.of_inode(ino),
        }
    }

    /// Checks that the previous block and this one point to each other.
    fn check_left(&mut self, level: usize, pointer: u64, left: u64) {
        if self.found.is_broken {
            return;
        }
        let (last, right) = self.levels[level].last.unwrap_or((NO_SIBLING, pointer));
        if right != pointer || (pointer != NO_SIBLING && left != last) {
            let named = if right == pointer { (last, left) } else { (pointer, right) };
            let finding = self.finding(self.codes.links).detail(format!("at level {level}"));
            self.ctx.found(finding.mismatch(shown(named.0), shown(named.1)));
        }
    }

    fn check_keys(
        &mut self,
        area: &Area,
        block: Block,
        level: usize,
        data: &[u8],
        above: &Above<T::Key>,
    ) {
        if area.count(data) == 0 {
            return;
        }
        let half = T::SHAPE.key_size / 2;
        let low = match level {
            0 => T::key_in_record(area.entry(data, 0)),
            _ => T::key(area.entry(data, 0)),
        };
        let high = |at| match level {
            0 => T::high_key_of(&T::record(area.entry(data, at))),
            _ => T::key(&area.entry(data, at)[half..]),
        };
        if low != above.low {
            let finding = self.finding(self.codes.keys).at_block(block.0);
            self.ctx
                .found(finding.mismatch(format_args!("{low:?}"), format_args!("{:?}", above.low)));
        }
        let highest = above.high.and_then(|_| (0..area.count(data)).map(high).max());
        if highest != above.high {
            let finding = self.finding(self.codes.keys).at_block(block.0).detail("highest key");
            self.ctx.found(
                finding.mismatch(format_args!("{highest:?}"), format_args!("{:?}", above.high)),
            );
        }
    }

    fn records(&mut self, area: &Area, block: Block, data: &[u8]) {
        for at in 0..area.count(data) {
            let bytes = area.entry(data, at);
            let key = T::key_in_record(bytes);
            if self.levels[0].key.is_some_and(|last| last >= key) {
                let finding = self.finding(self.codes.records).at_block(block.0);
                self.ctx.found(finding.detail(format!("record {at} is out of order")).mismatch(
                    format_args!("above {:?}", self.levels[0].key),
                    format_args!("{key:?}"),
                ));
            }
            self.levels[0].key = Some(key);
            self.visitor.record(T::record(bytes));
        }
    }

    fn children(&mut self, area: &Area, data: &[u8], level: usize) {
        let count = area.count(data);
        let half = T::SHAPE.key_size / 2;
        for at in 0..count {
            let entry = area.entry(data, at);
            let high = T::OVERLAPS.then(|| T::key(&entry[half..]));
            let above = Above { low: T::key(entry), high };
            // The only child of a root in an inode may be small.
            let is_alone = count == 1 && matches!(self.owner, TreeOwner::Inode(_));
            self.visit(area.pointer(data, at), level - 1, Some(above), is_alone);
        }
    }
}

fn ctx_lsn<T: Tree, V: Visitor<T>>(walk: &TreeWalk<'_, T, V>, block: Block, lsn: u64) {
    walk.ctx.check_lsn(lsn, || walk.finding(codes::LSN).at_block(block.0).field("bb_lsn"));
}

/// Returns the display form of a sibling.
fn shown(pointer: u64) -> String {
    if pointer == NO_SIBLING { "none".to_owned() } else { pointer.to_string() }
}
