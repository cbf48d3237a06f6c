//! Looking up names, and going through the blocks of a directory.

use std::ops::ControlFlow;

use vfs::{Corruption, Error, Ino, NAME_LEN_MAX, Result};

use super::map::{self, FILE_BLOCKS_MAX, Place, Run};
use super::names::{Style, Wanted};
use super::{index, inline};
use crate::Ext4;
use crate::format::address::{Block, FileBlock};
use crate::format::dirent;
use crate::format::inode::flags;
use crate::kind::Kind;
use crate::read::inode::Handle;

/// The inode a name stands for. `NotFound` if there is none.
pub(crate) fn lookup(fs: &Ext4, dir: &Handle, name: &[u8]) -> Result<Ino> {
    dir.require_directory()?;
    if name.len() > NAME_LEN_MAX {
        return Err(Error::NameTooLong);
    }
    let found = match name {
        b"." => Some(dir.ino().0 as u32),
        b".." => parent(fs, dir)?,
        _ => find(fs, dir, name)?,
    };
    found.map(|ino| Ino(ino.into())).ok_or(Error::NotFound)
}

fn find(fs: &Ext4, dir: &Handle, name: &[u8]) -> Result<Option<u32>> {
    let mut wanted = Wanted::new(Style::of(dir), name);
    if dir.has_flag(flags::INLINE_DATA) {
        let contents = inline::contents(fs, dir)?;
        for (_, entries) in inline_parts(fs, dir, &contents)? {
            if let Some(ino) = find_in_block(entries, &mut wanted) {
                return Ok(Some(ino));
            }
        }
        return Ok(None);
    }
    if index::is_indexed(fs, dir) {
        let (info, _) = index::root(fs, dir)?;
        let hasher = fs.volume.hasher(info.hash_version);
        if let Some(hash) = hasher.and_then(|hasher| wanted.hash(&hasher)) {
            let cursor = index::Cursor::seek(fs, dir, info, hash.major)?;
            return find_by_hash(fs, dir, cursor, hash.major, &mut wanted);
        }
    }
    let mut found = None;
    for_each_leaf(fs, dir, FileBlock(0), &mut |_, place, kind| {
        let block = fs.block(place, kind.of(dir.owner))?;
        found = find_in_block(&block, &mut wanted);
        Ok(if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(found)
}

fn find_in_block(block: &[u8], wanted: &mut Wanted<'_>) -> Option<u32> {
    if let Some(name) = wanted.exact() {
        return dirent::find(block, name).map(|record| record.inode);
    }
    dirent::entries(block).find(|record| wanted.is(record.name)).map(|record| record.inode)
}

/// Searches the leaf at `cursor` and those after it that hold names of the same hash.
fn find_by_hash(
    fs: &Ext4,
    dir: &Handle,
    mut cursor: index::Cursor,
    hash: u32,
    wanted: &mut Wanted<'_>,
) -> Result<Option<u32>> {
    for _ in 0..blocks_count(fs, dir)? {
        let leaf = cursor.leaf();
        let found = index::with_block(fs, dir, leaf, Kind::DirectoryLeaf, |block| {
            find_in_block(block, wanted)
        })?;
        if found.is_some() {
            return Ok(found);
        }
        match cursor.advance(fs, dir)? {
            Some(next) if next & !1 == hash => {}
            _ => return Ok(None),
        }
    }
    Err(dir.corrupt("directory index", "more leaves than the directory has blocks"))
}

/// The parent of a directory, as `..` says.
pub(crate) fn parent(fs: &Ext4, dir: &Handle) -> Result<Option<u32>> {
    if dir.has_flag(flags::INLINE_DATA) {
        return Ok(Some(inline_parent(dir)));
    }
    if index::is_indexed(fs, dir) {
        return Ok(Some(index::root(fs, dir)?.1));
    }
    let Some(place) = map::directory_block(fs, dir, FileBlock(0))? else { return Ok(None) };
    let block = fs.block(place, Kind::DirectoryLeaf.of(dir.owner))?;
    Ok(dirent::find(&block, b"..").map(|record| record.inode))
}

/// The parent of an inline directory, which takes the place of `.` and `..`.
pub(crate) fn inline_parent(dir: &Handle) -> u32 {
    let bytes = dir.inode.i_block();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The two checked chains of entries of an inline directory, and the byte each starts at.
pub(crate) fn inline_parts<'c>(
    fs: &Ext4,
    dir: &Handle,
    contents: &'c [u8],
) -> Result<[(usize, &'c [u8]); 2]> {
    const FIRST: usize = 4;
    let split = contents.len().min(dir.inode.i_block().len());
    let first = contents.get(FIRST..split).unwrap_or_default();
    let parts = [(FIRST, first), (split, &contents[split..])];
    for (_, part) in parts {
        dirent::verify(part, fs.volume.geometry.inodes_count, None)
            .map_err(|c| c.of_inode(dir.ino().0))?;
    }
    Ok(parts)
}

/// Blocks that a directory's size covers.
///
/// A directory has no holes, so it has no more blocks than the file system: a larger size, which
/// would make every bound that follows from it worthless, is damage.
pub(crate) fn blocks_count(fs: &Ext4, dir: &Handle) -> Result<u64> {
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

/// What [`for_each_leaf`] calls with a block's place in the directory, on the device, and what it
/// must be read as.
pub(crate) type EachLeaf<'a> = dyn FnMut(FileBlock, Block, Kind) -> Result<ControlFlow<()>> + 'a;

/// Goes through the blocks that hold entries, in the order they have in the directory, from `from`
/// on. The root of an index is one of them, for it holds `.` and `..`. Holes are passed over.
pub(crate) fn for_each_leaf(
    fs: &Ext4,
    dir: &Handle,
    from: FileBlock,
    each: &mut EachLeaf<'_>,
) -> Result<()> {
    let end = blocks_count(fs, dir)?;
    let indexed = index::is_indexed(fs, dir);
    let nodes = if indexed {
        let (info, _) = index::root(fs, dir)?;
        index::nodes(fs, dir, info, end)?
    } else {
        Vec::new()
    };
    let mut at = u64::from(from.0);
    while at < end {
        let Run { place, len } = map::run_at(fs, dir, FileBlock(at as u32))?;
        let run_end = at.saturating_add(len).min(end);
        if let Place::Written(start) = place {
            for (nth, block) in (at..run_end).enumerate() {
                let block = FileBlock(block as u32);
                if nodes.binary_search(&block).is_ok() {
                    continue;
                }
                let is_root = indexed && block == FileBlock(0);
                let kind = if is_root { Kind::HtreeRoot } else { Kind::DirectoryLeaf };
                if each(block, start.plus(nth as u64), kind)?.is_break() {
                    return Ok(());
                }
            }
        }
        at = run_end;
    }
    Ok(())
}
