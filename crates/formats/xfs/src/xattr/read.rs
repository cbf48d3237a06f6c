//! Finding and listing attributes in any form.

use vfs::{Error, Result};

use super::path::{AttrPath, LeafWalk, descend, locate, tag};
use crate::format::address::FileBlock;
use crate::format::attr::leaf::{self, Value};
use crate::format::attr::{AttrLayout, flags, remote, shortform};
use crate::format::inode::{Fork, ForkFormat};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::{self, Place};
use crate::op::source::Source;

/// The search key of an attribute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) namespace: u8,
    pub(super) name: &'a [u8],
    pub(super) hash: u32,
    /// The required value: parent pointers with one name differ only in their values.
    pub(super) value: Option<&'a [u8]>,
}

impl Key<'_> {
    /// Returns whether a shortform entry matches.
    pub(super) fn is_short(&self, entry: &shortform::ShortformEntry<'_>) -> bool {
        entry.flags & flags::NAMESPACE == self.namespace
            && entry.name == self.name
            && self.value.is_none_or(|value| entry.value == value)
    }

    fn is(&self, entry: &leaf::AttrLeafEntry<'_>) -> bool {
        entry.is_complete() && self.names(entry)
    }

    /// Returns whether an entry matches but is incomplete, as a crash may leave it.
    pub(super) fn is_part(&self, entry: &leaf::AttrLeafEntry<'_>) -> bool {
        !entry.is_complete() && self.names(entry)
    }

    fn names(&self, entry: &leaf::AttrLeafEntry<'_>) -> bool {
        entry.flags & flags::NAMESPACE == self.namespace
            && entry.name == self.name
            && self.value.is_none_or(|value| entry.value == Value::Local(value))
    }
}

/// The form of an inode's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttrForm {
    /// No attributes.
    Empty,
    /// In the inode.
    Short,
    /// In blocks.
    Blocks,
}

pub(super) fn form(handle: &Handle) -> AttrForm {
    match handle.inode.attr_format() {
        Some(ForkFormat::Local) => AttrForm::Short,
        Some(ForkFormat::Btree) => AttrForm::Blocks,
        Some(ForkFormat::Extents) if handle.inode.extents(Fork::Attr) > 0 => AttrForm::Blocks,
        _ => AttrForm::Empty,
    }
}

/// Returns whether the attribute fork has at most `max` blocks.
pub(super) fn blocks_fit(source: &mut impl Source, handle: &Handle, max: u32) -> Result<bool> {
    if form(handle) != AttrForm::Blocks {
        return Ok(true);
    }
    let mut left = u64::from(max);
    let mut at = FileBlock(0);
    while at < FileBlock::END {
        let run = map::run_at(source, handle, Fork::Attr, at)?;
        if run.place != Place::Hole {
            let Some(rest) = left.checked_sub(run.len) else { return Ok(false) };
            left = rest;
        }
        at = at.plus(run.len);
    }
    Ok(true)
}

/// Returns the shortform entries.
pub(super) fn short_entries(handle: &Handle) -> Result<shortform::ShortformEntries<'_>> {
    let entries = shortform::entries(handle.inode.fork(Fork::Attr));
    entries.map_err(|c| c.of_inode(handle.ino().0).into())
}

/// The position of an entry in a tree.
#[derive(Debug)]
pub(super) struct EntryPosition {
    /// The path to its leaf.
    pub(super) path: AttrPath,
    pub(super) index: usize,
}

/// Finds an attribute in blocks.
pub(super) fn find(
    source: &mut impl Source,
    handle: &Handle,
    key: &Key<'_>,
) -> Result<Option<EntryPosition>> {
    find_entry(source, handle, key.hash, |entry| key.is(entry))
}

/// Finds an entry with a hash in blocks that `is` accepts.
pub(super) fn find_entry(
    source: &mut impl Source,
    handle: &Handle,
    hash: u32,
    is: impl Fn(&leaf::AttrLeafEntry<'_>) -> bool,
) -> Result<Option<EntryPosition>> {
    let layout = AttrLayout::new(&source.geometry());
    let mut walk = LeafWalk::new(descend(source, handle, hash)?);
    loop {
        let step = walk.leaf();
        let found = source
            .with(step.place, tag(handle, step.at), |data| search(layout, data, hash, &is))?;
        match found {
            LeafSearch::Found(index) => return Ok(Some(EntryPosition { path: walk.path, index })),
            LeafSearch::Absent => return Ok(None),
            LeafSearch::GoOn if walk.advance(source, handle)? => {}
            LeafSearch::GoOn => return Ok(None),
        }
    }
}

enum LeafSearch {
    Found(usize),
    Absent,
    /// Further entries with this hash may be in the next leaf.
    GoOn,
}

fn search(
    layout: AttrLayout,
    data: &[u8],
    hash: u32,
    is: impl Fn(&leaf::AttrLeafEntry<'_>) -> bool,
) -> LeafSearch {
    let first = leaf::lower_bound(layout, data, hash);
    for index in first..leaf::count(layout, data) {
        let Some(entry) = leaf::entry(layout, data, index) else { return LeafSearch::Absent };
        if entry.hash != hash {
            return LeafSearch::Absent;
        }
        if is(&entry) {
            return LeafSearch::Found(index);
        }
    }
    LeafSearch::GoOn
}

/// An attribute passed to the callback of [`for_each`]: its flags, its name, and its value unless that is remote.
pub(super) type Met<'e> = (u8, &'e [u8], Option<&'e [u8]>);

/// Calls `each` with all attributes, until it fails.
pub(super) fn for_each(
    source: &mut impl Source,
    handle: &Handle,
    mut each: impl FnMut(Met<'_>) -> Result<()>,
) -> Result<()> {
    match form(handle) {
        AttrForm::Empty => Ok(()),
        AttrForm::Short => {
            for entry in short_entries(handle)? {
                let entry = entry.map_err(|c| c.of_inode(handle.ino().0))?;
                each((entry.flags, entry.name, Some(entry.value)))?;
            }
            Ok(())
        }
        AttrForm::Blocks => for_each_in_blocks(source, handle, &mut each),
    }
}

fn for_each_in_blocks(
    source: &mut impl Source,
    handle: &Handle,
    each: &mut impl FnMut(Met<'_>) -> Result<()>,
) -> Result<()> {
    let layout = AttrLayout::new(&source.geometry());
    let mut walk = LeafWalk::new(descend(source, handle, 0)?);
    loop {
        let step = walk.leaf();
        source.with(step.place, tag(handle, step.at), |data| {
            leaf::entries(layout, data).filter(leaf::AttrLeafEntry::is_complete).try_for_each(
                |entry| {
                    let value = match entry.value {
                        Value::Local(value) => Some(value),
                        Value::Remote(_) => None,
                    };
                    each((entry.flags, entry.name, value))
                },
            )
        })??;
        if !walk.advance(source, handle)? {
            return Ok(());
        }
    }
}

/// Returns the stored value of an attribute.
pub(super) fn value_of(
    source: &mut impl Source,
    handle: &Handle,
    key: &Key<'_>,
) -> Result<Option<Vec<u8>>> {
    match form(handle) {
        AttrForm::Empty => return Ok(None),
        AttrForm::Short => {
            let found = shortform::find(handle.inode.fork(Fork::Attr), |e| key.is_short(e));
            let found = found.map_err(|c| c.of_inode(handle.ino().0))?;
            return Ok(found.map(|entry| entry.value.to_vec()));
        }
        AttrForm::Blocks => {}
    }
    let Some(position) = find(source, handle, key)? else { return Ok(None) };
    let layout = AttrLayout::new(&source.geometry());
    let step = position.path[position.path.len() - 1];
    let found = source.with(step.place, tag(handle, step.at), |data| {
        leaf::entry(layout, data, position.index).map(|entry| match entry.value {
            Value::Local(value) => Ok(value.to_vec()),
            Value::Remote(place) => Err(place),
        })
    })?;
    match found {
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(place)) => read_remote(source, handle, place).map(Some),
        None => Ok(None),
    }
}

fn read_remote(
    source: &mut impl Source,
    handle: &Handle,
    place: remote::ValueLocation,
) -> Result<Vec<u8>> {
    let layout = AttrLayout::new(&source.geometry());
    // Leaves with longer values were refused when they were read.
    let len = (place.len as usize).min(crate::format::attr::VALUE_LEN_MAX);
    let mut value = Vec::with_capacity(len);
    for index in 0..remote::blocks(layout, len) {
        let left = len - value.len();
        let at = place.block.saturating_add(index);
        let block = locate(source, handle, at)?;
        let tag = BlockKind::AttrRemote.of_inode(handle.ino(), at);
        source.with(block, tag, |data| {
            let size = left.min(remote::bytes_per_block(layout));
            let part = remote::part(layout, data, value.len(), size)
                .map_err(|c| Error::from(c.of_inode(handle.ino().0).at_block(block.0)))?;
            value.extend_from_slice(part);
            Ok::<_, Error>(())
        })??;
    }
    Ok(value)
}
