//! Name lookup and iteration over the blocks of a directory.

use std::ops::ControlFlow;

use operations::inode::InodeHandle;
use vfs::{Corruption, Error, Ino, NAME_LEN_MAX, Result};

use crate::Ext4Core;
use crate::dir::compare::Wanted;
use crate::dir::index;
use crate::format::address::{Block, FileBlock};
use crate::format::dirent::{self, INLINE_PARENT_SIZE};
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::inode::inline;
use crate::kind::BlockKind;
use crate::map::{self, FILE_BLOCKS_MAX, MappedRun, Mapping};
use crate::op::source::BlockSource;

/// A directory entry and its position.
#[derive(Clone, Copy, Debug)]
pub struct FoundDirent {
    /// Inode of the entry.
    pub(crate) ino: Ino,
    /// Block that contains the entry; `None` if the directory is inline.
    pub(crate) place: Option<Block>,
    /// Offset of the record in the block, in bytes.
    pub(crate) offset: usize,
    /// Offset of the record before it; `None` if it is the first of its block.
    pub(crate) before: Option<usize>,
}

/// Looks up a name and returns its inode. Returns `NotFound` if there is none.
pub(crate) fn lookup(mut fs: &Ext4Core, dir: &Handle, name: &[u8]) -> Result<Ino> {
    dir.require_directory()?;
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    let found = match name {
        b"." => Some(dir.ino()),
        b".." => parent(&mut fs, dir)?,
        _ => find(&mut fs, dir, name)?.map(|found| found.ino),
    };
    found.ok_or(Error::NotFound)
}

/// Finds the entry of a name other than `.` and `..`.
pub(crate) fn find(
    source: &mut impl BlockSource,
    dir: &Handle,
    name: &[u8],
) -> Result<Option<FoundDirent>> {
    let mut wanted = Wanted::in_directory(source.fs(), dir, name)?;
    if dir.has_flag(flags::INLINE_DATA) {
        let fs = source.fs();
        let contents = inline::contents(fs, dir)?;
        for (_, entries) in inline_parts(fs, dir, &contents)? {
            if let Some(found) = find_in_block(entries, None, &mut wanted) {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    }
    if index::is_indexed(source.fs(), dir) {
        let parameters = source.fs().volume.hash_parameters();
        let (_, found) = index::Cursor::seek_root(source, dir, |info| {
            wanted.major(&parameters, info.hash_version)
        })?;
        if let Some((cursor, hash)) = found {
            return find_by_hash(source, dir, cursor, hash, &mut wanted);
        }
    }
    let mut found = None;
    for_each_leaf(source, dir, FileBlock(0), &mut |source, _, place, kind| {
        found = source.with(place, kind.of(dir.owner), |block| {
            find_in_block(block, Some(place), &mut wanted)
        })?;
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

/// Returns the stored spelling of the entry `found`, to which `name` led in a case-insensitive directory.
pub(crate) fn stored_name(
    source: &mut impl BlockSource,
    dir: &Handle,
    name: &[u8],
    found: &FoundDirent,
) -> Result<Vec<u8>> {
    let stored = match found.place {
        Some(place) => source.with(place, BlockKind::DirectoryLeaf.of(dir.owner), |block| {
            dirent::record_at(block, found.offset).map(|record| record.name.to_vec())
        })?,
        None => {
            let mut wanted = Wanted::in_directory(source.fs(), dir, name)?;
            let fs = source.fs();
            let contents = inline::contents(fs, dir)?;
            let parts = inline_parts(fs, dir, &contents)?;
            let mut records = parts.iter().flat_map(|(_, entries)| dirent::entries(entries));
            records.find(|record| wanted.is(record.name)).map(|record| record.name.to_vec())
        }
    };
    stored.ok_or_else(|| dir.corrupt("directory entry", "the locked entry is missing"))
}

/// Finds the entry of a name in a block, which is located at `place`.
pub(crate) fn find_in_block(
    block: &[u8],
    place: Option<Block>,
    wanted: &mut Wanted<'_>,
) -> Option<FoundDirent> {
    let located = match wanted.exact() {
        Some(name) => dirent::locate(block, name),
        None => dirent::locate_by(block, |stored| wanted.is(stored)),
    };
    located.map(|(record, before)| FoundDirent {
        ino: Ino(record.inode.into()),
        place,
        offset: record.offset,
        before,
    })
}

/// Searches the leaf at `cursor` and the following leaves with names of the same hash.
pub(crate) fn find_by_hash(
    source: &mut impl BlockSource,
    dir: &Handle,
    mut cursor: index::Cursor,
    hash: u32,
    wanted: &mut Wanted<'_>,
) -> Result<Option<FoundDirent>> {
    for _ in 0..blocks_count(source.fs(), dir)? {
        let place = index::place_of(source, dir, cursor.leaf())?;
        let tag = BlockKind::DirectoryLeaf.of(dir.owner);
        let found = source.with_noted(place, tag, |block, note| {
            let noted = wanted.exact().zip(note);
            let is_absent = noted.is_some_and(|(name, note)| dirent::excludes(note, name));
            if is_absent { None } else { find_in_block(block, Some(place), wanted) }
        })?;
        if found.is_some() || !cursor.may_go_on_with(hash) {
            return Ok(found);
        }
        match cursor.advance(source, dir)? {
            Some(next) if next & !1 == hash => {}
            _ => return Ok(None),
        }
    }
    Err(dir.corrupt("directory index", "more leaves than blocks in the directory"))
}

/// Returns whether a directory has no entries except `.` and `..`.
pub(crate) fn is_empty(source: &mut impl BlockSource, dir: &Handle) -> Result<bool> {
    let only_dots = |block: &[u8]| dirent::entries(block).all(|r| matches!(r.name, b"." | b".."));
    if dir.has_flag(flags::INLINE_DATA) {
        let fs = source.fs();
        let contents = inline::contents(fs, dir)?;
        let parts = inline_parts(fs, dir, &contents)?;
        return Ok(parts.iter().all(|(_, entries)| dirent::entries(entries).next().is_none()));
    }
    let mut empty = true;
    for_each_leaf(source, dir, FileBlock(0), &mut |source, _, place, kind| {
        empty = source.with(place, kind.of(dir.owner), only_dots)?;
        Ok(if empty { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(empty)
}

/// Returns the parent of a directory according to `..`.
pub(crate) fn parent(source: &mut impl BlockSource, dir: &Handle) -> Result<Option<Ino>> {
    let ino = |ino: u32| Ino(ino.into());
    if dir.has_flag(flags::INLINE_DATA) {
        return Ok(Some(ino(inline_parent(dir))));
    }
    if index::is_indexed(source.fs(), dir) {
        return Ok(Some(ino(index::root(source, dir)?.1)));
    }
    let Some(place) = source.place(dir, FileBlock(0))? else { return Ok(None) };
    source.with(place, BlockKind::DirectoryLeaf.of(dir.owner), |block| {
        dirent::find(block, b"..").map(|record| ino(record.inode))
    })
}

/// Distance by which an entry of an inline directory moves when it is converted to a block: there `.` and `..` replace
/// the four bytes of the parent's number.
pub(crate) const INLINE_SHIFT: usize =
    dirent::record_size(1) + dirent::record_size(2) - INLINE_PARENT_SIZE;

/// Returns the parent of an inline directory, which is stored instead of `.` and `..`.
pub(crate) fn inline_parent(dir: &Handle) -> u32 {
    let bytes = dir.inode.i_block();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Returns the two verified chains of entries of an inline directory and their start offsets.
pub(crate) fn inline_parts<'c>(
    fs: &Ext4Core,
    dir: &Handle,
    contents: &'c [u8],
) -> Result<[(usize, &'c [u8]); 2]> {
    const FIRST: usize = INLINE_PARENT_SIZE;
    let split = contents.len().min(dir.inode.i_block().len());
    let first = contents.get(FIRST..split).unwrap_or_default();
    let parts = [(FIRST, first), (split, &contents[split..])];
    for (_, part) in parts {
        dirent::verify(part, fs.volume.geometry.inodes_count, None)
            .map_err(|c| c.of_inode(dir.ino().0))?;
    }
    Ok(parts)
}

/// Returns the number of blocks of a directory.
///
/// A directory has no holes, so it cannot have more blocks than the file system. A larger size is damage: loop bounds
/// derived from it would be useless.
pub(crate) fn blocks_count(fs: &Ext4Core, dir: &Handle) -> Result<u64> {
    let geometry = &fs.volume.geometry;
    let size = dir.inode.size();
    let count = size >> geometry.block_size_log;
    if count <= geometry.blocks_count.min(FILE_BLOCKS_MAX) {
        return Ok(count);
    }
    let limit = u128::from(geometry.blocks_count) << geometry.block_size_log;
    Err(Corruption::new("directory", "its size is larger than the file system")
        .of_inode(dir.ino().0)
        .mismatch(format_args!("at most {limit}"), size)
        .into())
}

/// Callback of [`for_each_leaf`]. Receives the number of a block in the directory, its device block and the kind to
/// read it as.
pub(crate) type EachLeaf<'a, S> =
    dyn FnMut(&mut S, FileBlock, Block, BlockKind) -> Result<ControlFlow<()>> + 'a;

/// Visits the blocks that contain entries, in directory order, beginning at `from`. The root of an index is one of
/// them, because it contains `.` and `..`. Holes are skipped.
pub(crate) fn for_each_leaf<S: BlockSource>(
    source: &mut S,
    dir: &Handle,
    from: FileBlock,
    each: &mut EachLeaf<'_, S>,
) -> Result<()> {
    let end = blocks_count(source.fs(), dir)?;
    let indexed = index::is_indexed(source.fs(), dir);
    let nodes = if indexed {
        let (info, _) = index::root(source, dir)?;
        index::nodes(source, dir, info, end)?
    } else {
        Vec::new()
    };
    let mut at = u64::from(from.0);
    while at < end {
        let MappedRun { place, len } = map::run_at(source, dir, FileBlock(at as u32))?;
        let run_end = at.saturating_add(len).min(end);
        if let Mapping::Written(start) = place {
            for (nth, block) in (at..run_end).enumerate() {
                let block = FileBlock(block as u32);
                if nodes.binary_search(&block).is_ok() {
                    continue;
                }
                let is_root = indexed && block == FileBlock(0);
                let kind = if is_root { BlockKind::HtreeRoot } else { BlockKind::DirectoryLeaf };
                if each(source, block, start.plus(nth as u64), kind)?.is_break() {
                    return Ok(());
                }
            }
        }
        at = run_end;
    }
    Ok(())
}
