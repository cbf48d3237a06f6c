//! The trees of realtime groups: owners of blocks, and references to shared ones. Their roots are in inodes of the
//! metadata directory.
//!
//! An operation that holds a group has a copy of these inodes, which it writes when it commits, with all others.

use operations::Outcome;
use vfs::Ino;

use super::super::{RmapOwner, rmap, shared, staged};
use super::HeldTree;
use crate::btree::records::{RefcountRecord, RmapRecord, RtRefcountTree, RtRmapTree};
use crate::btree::{Cursor, Seek, Tree};
use crate::format::address::{AgBlock, FsBlock};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::map::ForkMap;
use crate::op::Op;

/// A cursor over a tree of a realtime group.
type GroupCursor<'c, 'o, 'a, T> = Cursor<'c, 'a, T, ForkMap<'o, 'a>>;

/// The kind of tree.
#[derive(Clone, Copy)]
enum TreeKind {
    Rmap,
    Refcount,
}

/// A tree whose root is in an inode of a realtime group.
trait InGroup: Tree {
    const KIND: TreeKind;
}

impl InGroup for RtRmapTree {
    const KIND: TreeKind = TreeKind::Rmap;
}

impl InGroup for RtRefcountTree {
    const KIND: TreeKind = TreeKind::Refcount;
}

impl<'a> Op<'a> {
    /// Returns the inode with a tree of a group, which is held from now on; `None` if it has no such tree.
    fn group_tree(&mut self, number: u32, kind: TreeKind) -> Outcome<Option<Ino>> {
        let space = self.realtime(number)?.space;
        Ok(match kind {
            TreeKind::Rmap => space.rmap,
            TreeKind::Refcount => space.refcount,
        })
    }

    /// Calls `change` with a cursor over a tree of a group. Returns `None` if the group has no such tree.
    fn with_tree<T, R>(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut GroupCursor<'_, '_, 'a, T>) -> Outcome<R>,
    ) -> Outcome<Option<R>>
    where
        T: InGroup + crate::map::ForkTree,
    {
        let Some(ino) = self.group_tree(number, <T as InGroup>::KIND)? else { return Ok(None) };
        let at = match self.realtime_trees.iter().position(|tree| tree.before.ino() == ino) {
            Some(at) => at,
            None => {
                let before = self.fs.load(ino)?;
                let handle = Some(before.clone());
                self.realtime_trees.push(HeldTree { before, handle });
                self.realtime_trees.len() - 1
            }
        };
        let handle = self.realtime_trees[at].handle.take();
        let mut handle = handle.unwrap_or_else(|| self.realtime_trees[at].before.clone());
        let result = {
            let mut map = self.map(&mut handle, Fork::Data);
            let mut cursor = Cursor::new(&mut map);
            change(&mut cursor)
        };
        self.realtime_trees[at].handle = Some(handle);
        result.map(Some)
    }

    /// Writes the changed inodes of trees when the operation commits.
    pub(crate) fn stage_realtime_trees(&mut self) {
        for tree in std::mem::take(&mut self.realtime_trees) {
            if let Some(handle) = tree.handle {
                self.stage_if_changed(handle, &tree.before);
            }
        }
    }

    /// Returns the group of an address that was checked, and the block in it; `None` without groups.
    fn realtime_place(&self, start: FsBlock) -> Outcome<Option<(u32, AgBlock)>> {
        let realtime = self.section()?.realtime;
        let block = realtime.device_block(start, 1).filter(|_| realtime.has_groups());
        let place = block.map(|block| realtime.locate(block));
        Ok(place.map(|(group, block)| (group, AgBlock(block as u32))))
    }

    /// Adds `owner` as the owner of `len` blocks at an address.
    pub(crate) fn own_realtime(
        &mut self,
        start: FsBlock,
        len: u64,
        owner: RmapOwner,
    ) -> Outcome<()> {
        let Some((number, start)) = self.realtime_place(start)? else { return Ok(()) };
        let record = RmapRecord::new(start, len as u32, owner);
        self.enter_realtime(number, record, true)
    }

    /// Removes the owner of `len` blocks at an address.
    pub(crate) fn disown_realtime_at(
        &mut self,
        start: FsBlock,
        len: u64,
        owner: RmapOwner,
    ) -> Outcome<()> {
        let Some((number, start)) = self.realtime_place(start)? else { return Ok(()) };
        self.disown_realtime(number, start, len as u32, owner)
    }

    /// Converts blocks of a file from written to unwritten or back. `owner` is their previous owner record.
    pub(crate) fn convert_realtime(
        &mut self,
        start: FsBlock,
        len: u64,
        owner: RmapOwner,
    ) -> Outcome<()> {
        let RmapOwner::Fork { ino, fork, offset, unwritten } = owner else { return Ok(()) };
        self.disown_realtime_at(start, len, owner)?;
        self.own_realtime(start, len, RmapOwner::Fork { ino, fork, offset, unwritten: !unwritten })
    }

    /// Adds a record to the reverse map of a group. `may_hide`: records of other owners may cover the same blocks.
    pub(crate) fn enter_realtime(
        &mut self,
        number: u32,
        record: RmapRecord,
        may_hide: bool,
    ) -> Outcome<()> {
        let may_hide = may_hide && self.group_tree(number, TreeKind::Refcount)?.is_some();
        let enter = |cursor: &mut GroupCursor<'_, '_, 'a, RtRmapTree>| {
            rmap::enter(cursor, record, may_hide)
        };
        self.with_tree(number, enter).map(drop)
    }

    /// Like [`Op::enter_realtime`], for a group that is not in use, given the inode with the tree.
    pub(crate) fn enter_realtime_in(
        &mut self,
        handle: &mut Handle,
        record: RmapRecord,
        may_hide: bool,
    ) -> Outcome<()> {
        let mut map = self.map(handle, Fork::Data);
        let mut cursor: GroupCursor<'_, '_, 'a, RtRmapTree> = Cursor::new(&mut map);
        rmap::enter(&mut cursor, record, may_hide)
    }

    /// Adds a record to the references of a group that is not in use, given the inode with the tree.
    pub(crate) fn insert_realtime_reference(
        &mut self,
        handle: &mut Handle,
        record: RefcountRecord,
    ) -> Outcome<()> {
        let mut map = self.map(handle, Fork::Data);
        let mut cursor: GroupCursor<'_, '_, 'a, RtRefcountTree> = Cursor::new(&mut map);
        cursor.seek((record.cow, record.start), Seek::Exactly)?;
        cursor.insert(record)
    }

    /// Removes a record or a part of one, which must exist, from the reverse map of a group.
    pub(crate) fn take_out_realtime(&mut self, number: u32, part: RmapRecord) -> Outcome<()> {
        let take_out =
            |cursor: &mut GroupCursor<'_, '_, 'a, RtRmapTree>| rmap::take_out(cursor, part, true);
        self.with_tree(number, take_out).map(drop)
    }

    /// Removes the owner of blocks of a group.
    pub(super) fn disown_realtime(
        &mut self,
        number: u32,
        start: AgBlock,
        len: u32,
        owner: RmapOwner,
    ) -> Outcome<()> {
        self.take_out_realtime(number, RmapRecord::new(start, len, owner))
    }

    /// Frees blocks of any owner, for which the reverse map may have none any more.
    pub(crate) fn free_realtime_disowned(
        &mut self,
        number: u32,
        start: AgBlock,
        len: u32,
    ) -> Outcome<()> {
        let disown =
            |cursor: &mut GroupCursor<'_, '_, 'a, RtRmapTree>| rmap::disown(cursor, start, len);
        self.with_tree(number, disown)?;
        self.free_realtime_blocks(number, start.0.into(), len.into())
    }

    /// Removes one reference from blocks of a group, and frees those that have none left.
    pub(crate) fn drop_realtime_references(
        &mut self,
        number: u32,
        start: AgBlock,
        len: u32,
    ) -> Outcome<()> {
        let find = |op: &mut Self, at, end| op.shared_realtime_from(number, at, end);
        shared::each_part(self, start, len, find, |op, part, run| match run {
            None => op.free_realtime_blocks(number, part.start, part.end - part.start),
            Some(run) => op.recount_realtime(number, run, part, run.count - 1),
        })
    }

    /// Adds one reference to blocks of a group that are in use.
    pub(crate) fn add_realtime_references(
        &mut self,
        number: u32,
        start: AgBlock,
        len: u32,
    ) -> Outcome<()> {
        let find = |op: &mut Self, at, end| op.shared_realtime_from(number, at, end);
        shared::each_part(self, start, len, find, |op, part, run| match run {
            None => {
                let begin = |cursor: &mut GroupCursor<'_, '_, 'a, RtRefcountTree>| {
                    shared::begin_sharing(cursor, part)
                };
                op.with_tree(number, begin).map(drop)
            }
            Some(run) => op.recount_realtime(number, run, part, run.count + 1),
        })
    }

    /// Adds one reference to blocks at an address. Returns false if the image cannot share realtime blocks.
    pub(crate) fn share_realtime(&mut self, start: FsBlock, len: u64) -> Outcome<bool> {
        let Some((number, start)) = self.realtime_place(start)? else { return Ok(false) };
        if self.group_tree(number, TreeKind::Refcount)?.is_none() {
            return Ok(false);
        }
        self.add_realtime_references(number, start, len as u32)?;
        Ok(true)
    }

    fn shared_realtime_from(
        &mut self,
        number: u32,
        at: u64,
        end: u64,
    ) -> Outcome<Option<RefcountRecord>> {
        let limit = self.group_limit(number)?;
        let find = |cursor: &mut GroupCursor<'_, '_, 'a, RtRefcountTree>| {
            shared::shared_from(cursor, at..end, limit)
        };
        Ok(self.with_tree(number, find)?.flatten())
    }

    /// Returns the number of blocks of a group.
    fn group_limit(&mut self, number: u32) -> Outcome<u64> {
        let space = self.realtime(number)?.space;
        Ok(space.layout.extents() * u64::from(space.realtime.extent_blocks()))
    }

    fn recount_realtime(
        &mut self,
        number: u32,
        run: RefcountRecord,
        blocks: std::ops::Range<u64>,
        count: u32,
    ) -> Outcome<()> {
        let recount = |cursor: &mut GroupCursor<'_, '_, 'a, RtRefcountTree>| {
            shared::recount(cursor, run, blocks.clone(), count)
        };
        self.with_tree(number, recount)?;
        if count == 1 && self.fs.engine.has_log() {
            // The remaining file must not overwrite them before the checkpoint is durable.
            let mut held = self.realtime(number)?;
            let of_extent = u64::from(held.space.realtime.extent_blocks());
            let extents = blocks.start / of_extent..blocks.end.div_ceil(of_extent);
            held.make_busy(extents.start as u32..extents.end as u32);
        }
        Ok(())
    }

    /// Like [`Op::own_blocks`], for blocks of the realtime device.
    pub(crate) fn own_realtime_blocks(&mut self, block: u64, len: u64) -> Outcome<(bool, u64)> {
        let (number, at) = self.section()?.realtime.locate(block);
        let mut until = at + len;
        if let Some(run) = self.shared_realtime_from(number, at, until)? {
            if u64::from(run.start.0) <= at {
                return Ok((false, run.end().min(until) - at));
            }
            until = run.start.0.into();
        }
        let held = self.realtime(number)?;
        if held.space.realtime.extent_blocks() != 1 {
            // Larger realtime extents are never shared.
            return Ok((true, until - at));
        }
        Ok(shared::clean_start(&held.busy(), at as u32..until as u32))
    }

    /// Like [`Op::alike_at_end`], for blocks of the realtime device.
    pub(crate) fn alike_realtime_at_end(
        &mut self,
        block: u64,
        len: u64,
        pieces: &mut u32,
    ) -> Outcome<u64> {
        let (number, from) = self.section()?.realtime.locate(block);
        let end = from + len;
        let mut at = end;
        while at > from && *pieces > 0 {
            *pieces -= 1;
            let find = |cursor: &mut GroupCursor<'_, '_, 'a, RtRefcountTree>| {
                shared::alike_before(cursor, at)
            };
            at = self.with_tree(number, find)?.unwrap_or(0).max(from);
        }
        Ok(end - at)
    }

    /// Like [`Op::alike_at_start`], for blocks of the realtime device.
    pub(crate) fn alike_realtime_at_start(
        &mut self,
        block: u64,
        len: u64,
        pieces: &mut u32,
    ) -> Outcome<u64> {
        let (number, from) = self.section()?.realtime.locate(block);
        let end = from + len;
        let mut at = from;
        while at < end && *pieces > 0 {
            *pieces -= 1;
            let find = |cursor: &mut GroupCursor<'_, '_, 'a, RtRefcountTree>| {
                shared::alike_after(cursor, at)
            };
            at = self.with_tree(number, find)?.unwrap_or(u64::MAX).min(end);
        }
        Ok(at - from)
    }

    /// Records blocks of a group as staged for copy on write, or (`is_more` false) not any more.
    pub(crate) fn stage_realtime(
        &mut self,
        number: u32,
        (start, len): (AgBlock, u32),
        is_more: bool,
    ) -> Outcome<()> {
        let change = |cursor: &mut GroupCursor<'_, '_, 'a, RtRefcountTree>| match is_more {
            true => staged::stage(cursor, start, len),
            false => staged::unstage(cursor, start, len),
        };
        self.with_tree(number, change).map(drop)
    }

    /// Frees some staged blocks of a group. Returns whether those were all.
    pub(crate) fn free_some_staged_realtime(&mut self, number: u32) -> Outcome<bool> {
        let limit = self.group_limit(number)?;
        for _ in 0..staged::FREED_PER_OP_MAX {
            let find = |cursor: &mut GroupCursor<'_, '_, 'a, RtRefcountTree>| {
                staged::first_staged(cursor, limit)
            };
            let Some(run) = self.with_tree(number, find)?.flatten() else { return Ok(true) };
            self.stage_realtime(number, (run.start, run.len), false)?;
            self.disown_realtime(number, run.start, run.len, RmapOwner::Staged)?;
            self.free_realtime_blocks(number, run.start.0.into(), run.len.into())?;
        }
        Ok(false)
    }

    /// Checks that blocks of a group have no owner.
    pub(crate) fn check_realtime_nobody(
        &mut self,
        number: u32,
        start: AgBlock,
        len: u32,
    ) -> Outcome<()> {
        let check = |cursor: &mut GroupCursor<'_, '_, 'a, RtRmapTree>| {
            rmap::check_nobody(cursor, start, len)
        };
        self.with_tree(number, check).map(drop)
    }
}
