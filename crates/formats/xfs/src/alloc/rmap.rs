//! The reverse map: the owner of each block in use. All changes are no-ops in file systems without it.
//!
//! Runs of one owner that are contiguous in blocks, logical blocks and flags are one record. Records overlap only in
//! blocks shared by files. There, records of other owners that start later may come between the record searched for and
//! its blocks: they hide it.

use engine::Corruption;
use operations::Outcome;
use vfs::Error;

use super::RmapOwner;
use super::ags::AgTree;
use super::held::HeldAg;
use crate::btree::records::{
    RefcountTree, RmapKey, RmapRecord, RmapTree, RtRmapTree, rmap_offset, rmap_owner,
};
use crate::btree::{Cursor, Seek, Supply, Tree};
use crate::format::address::AgBlock;
use crate::format::inode::Fork;

/// A reverse map: of an allocation group or of a realtime group.
pub(crate) trait ReverseMap: Tree<Record = RmapRecord, Key = RmapKey> {}

impl ReverseMap for RmapTree {}
impl ReverseMap for RtRmapTree {}

impl RmapOwner {
    /// Returns owner and offset as stored in a record.
    const fn in_record(self) -> (u64, u64) {
        const fn flag_of(fork: Fork) -> u64 {
            match fork {
                Fork::Data => 0,
                Fork::Attr => rmap_offset::ATTR_FORK,
            }
        }
        match self {
            Self::Fork { ino, fork, offset, unwritten } => {
                let state = if unwritten { rmap_offset::UNWRITTEN } else { 0 };
                (ino.0, offset & rmap_offset::MASK | flag_of(fork) | state)
            }
            Self::Bmbt { ino, fork } => (ino.0, rmap_offset::BMBT_BLOCK | flag_of(fork)),
            Self::InodeTrees => (rmap_owner::INOBT, 0),
            Self::Inodes => (rmap_owner::INODES, 0),
            Self::RefcountTree => (rmap_owner::REFC, 0),
            Self::Ag => (rmap_owner::AG, 0),
            Self::Staged => (rmap_owner::COW, 0),
        }
    }

    pub(super) const fn can_share(self) -> bool {
        matches!(self, Self::Fork { fork: Fork::Data, .. })
    }
}

impl RmapRecord {
    pub(crate) fn new(start: AgBlock, len: u32, owner: RmapOwner) -> Self {
        let (owner, offset) = owner.in_record();
        Self { start, len, owner, offset }
    }

    /// Returns the offset of the block at index `skip`.
    fn offset_at(&self, skip: u32) -> u64 {
        // A damaged record may overflow here. The result then fits no other record.
        if self.has_offsets() { self.offset.wrapping_add(skip.into()) } else { self.offset }
    }

    /// Returns the rest of the record after its first `skip` blocks, which must not be all of it.
    fn tail(self, skip: u32) -> Self {
        let start = AgBlock(self.start.0 + skip);
        Self { start, len: self.len - skip, offset: self.offset_at(skip), ..self }
    }

    /// Returns both records joined, if `next` continues this one.
    fn joined(self, next: Self) -> Option<Self> {
        let continues = self.owner == next.owner
            && self.end() == u64::from(next.start.0)
            && self.offset_at(self.len) == next.offset;
        let len = self.len.checked_add(next.len)?;
        continues.then_some(Self { len, ..self })
    }

    /// Returns whether the record covers all blocks of `part`, for the same owner.
    fn has(&self, part: &Self) -> bool {
        let Some(skip) = part.start.0.checked_sub(self.start.0) else { return false };
        self.owner == part.owner && part.end() <= self.end() && part.offset == self.offset_at(skip)
    }
}

impl HeldAg<'_, '_> {
    /// Adds `owner` as the owner of `len` blocks from `start` on.
    pub(crate) fn rmap_add(&mut self, start: AgBlock, len: u32, owner: RmapOwner) -> Outcome<()> {
        if !self.has_reverse_map() || len == 0 {
            return Ok(());
        }
        let may_hide = owner.can_share() && self.shares_blocks()?;
        self.rmap_enter(RmapRecord::new(start, len, owner), may_hide)
    }

    /// Adds a record, joined with its neighbours where possible. `may_hide`: records of other owners may cover the same
    /// blocks. There must be a reverse map.
    pub(crate) fn rmap_enter(&mut self, new: RmapRecord, may_hide: bool) -> Outcome<()> {
        enter(&mut self.cursor::<RmapTree>(), new, may_hide)
    }

    /// Removes `owner` as the owner of `len` blocks from `start` on. The reverse map must have it.
    pub(crate) fn rmap_remove(
        &mut self,
        start: AgBlock,
        len: u32,
        owner: RmapOwner,
    ) -> Outcome<()> {
        if !self.has_reverse_map() || len == 0 {
            return Ok(());
        }
        self.rmap_take_out(RmapRecord::new(start, len, owner), owner.can_share())
    }

    /// Removes a record or a part of one, which must exist. `may_hide`: records of other owners may cover the same
    /// blocks. There must be a reverse map.
    pub(crate) fn rmap_take_out(&mut self, part: RmapRecord, may_hide: bool) -> Outcome<()> {
        take_out(&mut self.cursor::<RmapTree>(), part, may_hide)
    }

    /// Removes the owner of some blocks, if they have one. A single owner must have all of them, and no other owner
    /// any.
    pub(crate) fn rmap_disown(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        if !self.has_reverse_map() || len == 0 {
            return Ok(());
        }
        disown(&mut self.cursor::<RmapTree>(), start, len)
    }

    /// Checks that blocks have no owner. There must be a reverse map.
    pub(crate) fn rmap_check_nobody(&mut self, start: AgBlock, len: u32) -> Outcome<()> {
        check_nobody(&mut self.cursor::<RmapTree>(), start, len)
    }

    /// Converts blocks of a fork from written to unwritten or back. `owner` is their previous owner record.
    pub(crate) fn rmap_convert(
        &mut self,
        start: AgBlock,
        len: u32,
        owner: RmapOwner,
    ) -> Outcome<()> {
        let RmapOwner::Fork { ino, fork, offset, unwritten } = owner else { return Ok(()) };
        self.rmap_remove(start, len, owner)?;
        let now = RmapOwner::Fork { ino, fork, offset, unwritten: !unwritten };
        self.rmap_add(start, len, now)
    }

    /// Returns whether a group has a reverse map.
    pub(crate) fn has_reverse_map(&self) -> bool {
        self.has_tree(AgTree::Rmap)
    }

    /// Returns whether files may share blocks of the group.
    fn shares_blocks(&mut self) -> Outcome<bool> {
        if !self.has_tree(AgTree::Refcount) {
            return Ok(false);
        }
        let mut cursor = self.cursor::<RefcountTree>();
        let first = cursor.seek((false, AgBlock(0)), Seek::AtLeast)?;
        Ok(first.is_some_and(|first| !first.cow))
    }
}

/// Adds a record to a reverse map. See [`HeldAg::rmap_enter`].
pub(super) fn enter<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    new: RmapRecord,
    may_hide: bool,
) -> Outcome<()> {
    let start = new.start;
    let before = cursor.seek(new.key(), Seek::AtMost)?;
    let is_twice = before.is_some_and(|before| before.key() == new.key());
    if is_twice || !may_hide && before.is_some_and(|before| before.end() > start.0.into()) {
        return Err(conflict(cursor, new, before).into());
    }
    let mut left = before.and_then(|before| before.joined(new));
    if left.is_none() && may_hide {
        left = seek_left_of(cursor, new)?;
        if left.is_none() {
            cursor.seek(new.key(), Seek::AtMost)?;
        }
    }
    if let Some(joined) = left {
        return join_left(cursor, joined, new, may_hide);
    }
    let after =
        if before.is_some() { cursor.next()? } else { cursor.seek(new.key(), Seek::AtLeast)? };
    if !may_hide && after.is_some_and(|after| u64::from(after.start.0) < new.end()) {
        return Err(conflict(cursor, new, after).into());
    }
    let right = if may_hide { seek_right_of(cursor, new)? } else { after };
    match right.and_then(|right| new.joined(right)) {
        Some(joined) => cursor.replace(joined),
        None => cursor.insert(new),
    }
}

/// Removes a record or a part of one from a reverse map. See [`HeldAg::rmap_take_out`].
pub(super) fn take_out<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    part: RmapRecord,
    may_hide: bool,
) -> Outcome<()> {
    let before = cursor.seek(part.key(), Seek::AtMost)?;
    let mut found = before.filter(|before| before.has(&part));
    if found.is_none() && may_hide {
        let (low, high) = (first_key(part.start), last_key(part.start));
        found = cursor.find(low, high, |r| r.has(&part))?;
    }
    match found {
        Some(whole) => cut_out(cursor, whole, part.start, part.len),
        None => Err(conflict(cursor, part, before).into()),
    }
}

/// Removes the owner of some blocks, if they have one. See [`HeldAg::rmap_disown`].
pub(super) fn disown<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    start: AgBlock,
    len: u32,
) -> Outcome<()> {
    let wanted = RmapRecord { start, len, owner: 0, offset: 0 };
    let Some(whole) = find_any(cursor, wanted)? else { return Ok(()) };
    let is_static = matches!(whole.owner, rmap_owner::FS | rmap_owner::LOG);
    if is_static || whole.start.0 > start.0 || whole.end() < wanted.end() {
        return Err(conflict(cursor, wanted, Some(whole)).into());
    }
    cut_out(cursor, whole, start, len)?;
    check_nobody(cursor, start, len)
}

/// Checks that blocks have no owner.
pub(super) fn check_nobody<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    start: AgBlock,
    len: u32,
) -> Outcome<()> {
    let wanted = RmapRecord { start, len, owner: 0, offset: 0 };
    match find_any(cursor, wanted)? {
        Some(other) => Err(conflict(cursor, wanted, Some(other)).into()),
        None => Ok(()),
    }
}

/// Moves to the first record that covers any block of `wanted`.
fn find_any<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    wanted: RmapRecord,
) -> Outcome<Option<RmapRecord>> {
    let last = AgBlock(wanted.start.0.saturating_add(wanted.len.saturating_sub(1)));
    cursor.find(first_key(wanted.start), last_key(last), |r| {
        r.end() > wanted.start.0.into() && r.start.0 <= last.0
    })
}

/// Cuts blocks out of the cursor's record, which must cover all of them.
fn cut_out<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    whole: RmapRecord,
    start: AgBlock,
    len: u32,
) -> Outcome<()> {
    let skip = start.0 - whole.start.0;
    let rest = whole.len - skip - len;
    match (skip, rest) {
        (0, 0) => cursor.remove(),
        (0, _) => cursor.replace(whole.tail(len)),
        (_, 0) => cursor.update(RmapRecord { len: skip, ..whole }),
        (_, _) => {
            cursor.update(RmapRecord { len: skip, ..whole })?;
            cursor.insert(whole.tail(skip + len))
        }
    }
}

/// Returns the lowest key of a record that starts at a block.
const fn first_key(start: AgBlock) -> RmapKey {
    RmapKey { start, owner: 0, offset: 0 }
}

/// Returns the highest key of a record that starts at a block.
const fn last_key(start: AgBlock) -> RmapKey {
    RmapKey { start, owner: u64::MAX, offset: u64::MAX }
}

/// Moves to the record that `new` continues, regardless of its start. Returns both joined.
fn seek_left_of<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    new: RmapRecord,
) -> Outcome<Option<RmapRecord>> {
    let Some(last) = new.start.0.checked_sub(1).map(AgBlock) else { return Ok(None) };
    let found = cursor.find(first_key(last), last_key(last), |r| r.joined(new).is_some())?;
    Ok(found.and_then(|left| left.joined(new)))
}

/// Moves to the record that continues `new`.
fn seek_right_of<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    new: RmapRecord,
) -> Outcome<Option<RmapRecord>> {
    let Ok(start) = u32::try_from(new.end()) else { return Ok(None) };
    let mut key = new.key();
    key.start = AgBlock(start);
    key.offset = RmapRecord { offset: key.offset, ..new }.offset_at(new.len);
    cursor.seek(key, Seek::Exactly)
}

/// Replaces the cursor's record by `joined`, which is that record joined with `new`. A record that continues `joined`
/// is joined as well.
fn join_left<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &mut Cursor<'_, 'a, T, S>,
    joined: RmapRecord,
    new: RmapRecord,
    may_hide: bool,
) -> Outcome<()> {
    cursor.update(joined)?;
    let after = if may_hide { seek_right_of(cursor, new)? } else { cursor.peek_next()? };
    if !may_hide && after.is_some_and(|after| u64::from(after.start.0) < new.end()) {
        return Err(conflict(cursor, new, after).into());
    }
    let Some(whole) = after.and_then(|after| joined.joined(after)) else { return Ok(()) };
    if !may_hide {
        cursor.next()?;
    }
    cursor.remove()?;
    match cursor.seek(joined.key(), Seek::Exactly)? {
        Some(_) => cursor.update(whole),
        None => Err(conflict(cursor, joined, None).into()),
    }
}

/// Returns the error for a reverse map that contradicts other metadata.
fn conflict<'a, T: ReverseMap, S: Supply<'a, T>>(
    cursor: &Cursor<'_, 'a, T, S>,
    expected: RmapRecord,
    found: Option<RmapRecord>,
) -> Error {
    let text = |r: &RmapRecord| {
        format!("{} blocks from {} of owner {:#x} at {:#x}", r.len, r.start, r.owner, r.offset)
    };
    let found = found.as_ref().map_or_else(|| "nothing".to_owned(), text);
    let damage = Corruption::new(T::SHAPE.name, "it does not match the mapped blocks");
    cursor.in_tree(damage.mismatch(text(&expected), found)).into()
}
