//! Listing directories.
//!
//! Hashed directories are listed in the order of the hash, as the kernel does: an entry's cookie is
//! `(major >> 1) << 32 | minor` of its name, so that it stays where it is while others come and go
//! and leaves split. The legacy hash has no minor half: a checksum of the name stands for it. Should
//! all 63 bits of two names be equal, which does not happen unless somebody makes it happen, the
//! second counts one up, and is not found again if the first goes meanwhile.
//! Directories of one block, or inline, count as hashed ones if the file system makes those, so that
//! cookies outlast their growth.
//! Other directories are listed in the order of their blocks, with the byte as cookie. `next` of an
//! entry is one past its own cookie, or the byte after it.
//!
//! Listing allocates nothing per entry: blocks are copied to a [`Scratch`] that may be used again,
//! and nothing is locked while the callback runs.

use std::ops::ControlFlow;

use vfs::{Cookie, Corruption, DirEntry, FileType, Ino, Result};

use super::directory::{self, for_each_leaf};
use super::index::{self, Cursor};
use super::inline;
use super::names::Style;
use super::source::Source;
use crate::Ext4;
use crate::format::address::FileBlock;
use crate::format::checksum::crc32c;
use crate::format::dirent::{self, Record};
use crate::format::features::Incompat;
use crate::format::hash::{HashVersion, NameHasher};
use crate::format::htree::RootInfo;
use crate::format::inode::flags;
use crate::kind::Kind;
use crate::read::inode::Handle;

/// Called with each entry, until it breaks.
pub(crate) type Each<'a> = dyn FnMut(DirEntry<'_>) -> ControlFlow<()> + 'a;

/// Memory for a listing, to be used again.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Copies of the blocks being listed.
    bytes: Vec<u8>,
    /// Their entries, to be sorted.
    items: Vec<Item>,
    /// A name in the form it is shown or hashed.
    name: Vec<u8>,
}

/// An entry of the blocks in a [`Scratch`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    key: u64,
    name_start: u32,
    inode: u32,
    name_len: u8,
    file_type: u8,
}

/// Lists a directory from `from` on, `.` and `..` first. The entry that `each` breaks on counts as
/// delivered.
pub(crate) fn readdir(
    mut fs: &Ext4,
    dir: &Handle,
    from: Cookie,
    scratch: &mut Scratch,
    each: &mut Each<'_>,
) -> Result<()> {
    dir.require_directory()?;
    let (leaves, version, parent) = if index::is_indexed(fs, dir) {
        let (info, parent) = index::root(&mut fs, dir)?;
        (Leaves::Indexed(info), info.hash_version, Some(Ino(parent.into())))
    } else if fs.volume.dir_index && directory::blocks_count(fs, dir)? <= 1 {
        (Leaves::Single, fs.volume.default_hash_version(), directory::parent(&mut fs, dir)?)
    } else {
        return in_place_order(fs, dir, from, scratch, each);
    };
    match (fs.volume.hasher(version), parent) {
        (Some(hasher), Some(parent)) => {
            let listing = Listing::new(fs, dir);
            in_hash_order(&listing, leaves, parent, &hasher, from, scratch, each)
        }
        _ => in_place_order(fs, dir, from, scratch, each),
    }
}

/// Reports all entries, `.` and `..` included, in the order that is fastest to read. Their cookies
/// are of no use.
pub(crate) fn for_each_entry(
    fs: &Ext4,
    dir: &Handle,
    scratch: &mut Scratch,
    each: &mut Each<'_>,
) -> Result<()> {
    dir.require_directory()?;
    in_place_order(fs, dir, Cookie(0), scratch, each)
}

/// What all ways of listing need to know of a directory.
struct Listing<'l> {
    fs: &'l Ext4,
    dir: &'l Handle,
    style: Style,
    has_types: bool,
}

impl<'l> Listing<'l> {
    fn new(fs: &'l Ext4, dir: &'l Handle) -> Self {
        let has_types = fs.volume.sb.features.incompat(Incompat::FILETYPE);
        Self { fs, dir, style: Style::of(dir), has_types }
    }

    /// Reports one entry; `file_type` is the byte of its record.
    fn deliver(
        &self,
        stored: &[u8],
        (inode, file_type, next): (u32, u8, u64),
        name: &mut Vec<u8>,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        let Some(name) = self.style.show(stored, name) else {
            let shown = String::from_utf8_lossy(stored).into_owned();
            return Err(Corruption::new("directory entry", "an impossible name")
                .of_inode(self.dir.ino().0)
                .mismatch("no '/' and no zero byte", shown)
                .into());
        };
        let file_type = if self.has_types { dirent::file_type_from_code(file_type) } else { None };
        Ok(each(DirEntry { name, ino: Ino(inode.into()), file_type, next: Cookie(next) }))
    }

    /// Reports `.` or `..` if the listing does not start behind it.
    fn deliver_dot(
        &self,
        position: u64,
        ino: Ino,
        from: Cookie,
        each: &mut Each<'_>,
    ) -> ControlFlow<()> {
        if from.0 > position {
            return ControlFlow::Continue(());
        }
        let name: &[u8] = if position == 0 { b"." } else { b".." };
        let file_type = self.has_types.then_some(FileType::Directory);
        each(DirEntry { name, ino, file_type, next: Cookie(position + 1) })
    }

    /// Reports those records of a checked chain that start at or behind `from`, which counts as the
    /// cookies do; the chain starts at cookie `start`.
    fn deliver_chain(
        &self,
        chain: &[u8],
        start: u64,
        from: Cookie,
        name: &mut Vec<u8>,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        for record in dirent::entries(chain) {
            let at = start + record.offset as u64;
            let next = at + record.rec_len as u64;
            if at >= from.0 {
                let Record { inode, file_type, .. } = record;
                let flow = self.deliver(record.name, (inode, file_type, next), name, each)?;
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn in_place_order(
    mut fs: &Ext4,
    dir: &Handle,
    from: Cookie,
    scratch: &mut Scratch,
    each: &mut Each<'_>,
) -> Result<()> {
    let listing = Listing::new(fs, dir);
    if dir.has_flag(flags::INLINE_DATA) {
        return in_inode(&listing, from, scratch, each);
    }
    let log = fs.volume.geometry.block_size_log;
    let Ok(first) = u32::try_from(from.0 >> log) else { return Ok(()) };
    let Scratch { bytes, name, .. } = scratch;
    for_each_leaf(&mut fs, dir, FileBlock(first), &mut |fs, block, place, kind| {
        bytes.clear();
        fs.with(place, kind.of(dir.owner), |block| bytes.extend_from_slice(block))?;
        listing.deliver_chain(bytes, u64::from(block.0) << log, from, name, each)
    })
}

/// Lists an inline directory. The cookies are those that the entries keep when the directory gets
/// a block of its own.
fn in_inode(
    listing: &Listing<'_>,
    from: Cookie,
    scratch: &mut Scratch,
    each: &mut Each<'_>,
) -> Result<()> {
    let Listing { fs, dir, .. } = *listing;
    let contents = inline::contents(fs, dir)?;
    let parent = Ino(directory::inline_parent(dir).into());
    let dots = [(0, dir.ino()), (dirent::record_size(1), parent)];
    for (position, ino) in dots {
        if listing.deliver_dot(position as u64, ino, from, each).is_break() {
            return Ok(());
        }
    }
    for (start, part) in directory::inline_parts(fs, dir, &contents)? {
        let start = (start + directory::INLINE_SHIFT) as u64;
        if listing.deliver_chain(part, start, from, &mut scratch.name, each)?.is_break() {
            break;
        }
    }
    Ok(())
}

/// Where the entries of a directory listed by hash are.
enum Leaves {
    /// Below an index.
    Indexed(RootInfo),
    /// In the only block, or in the inode.
    Single,
}

/// Most bytes of leaves whose names all have one hash. Sorting them takes a few times as much
/// memory. Names that are not made to collide fill a few blocks at most.
const SAME_HASH_BYTES_MAX: usize = 4 << 20;

/// The highest cookie that a listing in the order of hashes comes to.
const HASH_COOKIE_MAX: u64 = i64::MAX as u64;

fn in_hash_order(
    listing: &Listing<'_>,
    leaves: Leaves,
    parent: Ino,
    hasher: &NameHasher,
    from: Cookie,
    scratch: &mut Scratch,
    each: &mut Each<'_>,
) -> Result<()> {
    let Listing { mut fs, dir, .. } = *listing;
    for (position, ino) in [dir.ino(), parent].into_iter().enumerate() {
        if listing.deliver_dot(position as u64, ino, from, each).is_break() {
            return Ok(());
        }
    }
    if from.0 >= HASH_COOKIE_MAX {
        return Ok(());
    }
    let start = ((from.0 >> 32) as u32) << 1;
    let mut cursor = match leaves {
        Leaves::Indexed(info) => Some(Cursor::seek(&mut fs, dir, info, start)?),
        Leaves::Single => None,
    };
    let mut leaves_left = directory::blocks_count(fs, dir)?;
    let mut position = 1;
    loop {
        scratch.bytes.clear();
        scratch.items.clear();
        let more = match &mut cursor {
            Some(cursor) => gather(listing, cursor, &mut leaves_left, hasher, scratch)?,
            None => gather_single(listing, hasher, scratch)?,
        };
        scratch.items.sort_unstable();
        let Scratch { bytes, items, name } = scratch;
        for item in items.iter() {
            position = item.key.max(position + 1);
            if position < from.0 {
                continue;
            }
            let start = item.name_start as usize;
            let stored = bytes.get(start..start + usize::from(item.name_len)).unwrap_or_default();
            let entry = (item.inode, item.file_type, position + 1);
            if listing.deliver(stored, entry, name, each)?.is_break() {
                return Ok(());
            }
        }
        if !more {
            return Ok(());
        }
    }
}

/// Copies the leaf at the cursor, and those after it that go on with the same hash, and moves on.
/// False at the end of the directory.
fn gather(
    listing: &Listing<'_>,
    cursor: &mut Cursor,
    leaves_left: &mut u64,
    hasher: &NameHasher,
    scratch: &mut Scratch,
) -> Result<bool> {
    let Listing { mut fs, dir, .. } = *listing;
    loop {
        let too_many =
            || dir.corrupt("directory index", "more leaves than the directory has blocks");
        *leaves_left = leaves_left.checked_sub(1).ok_or_else(too_many)?;
        let start = scratch.bytes.len();
        index::with_block(&mut fs, dir, cursor.leaf(), Kind::DirectoryLeaf, |block| {
            scratch.bytes.extend_from_slice(block);
        })?;
        if scratch.bytes.len() > SAME_HASH_BYTES_MAX.max(fs.volume.block_size()) {
            return Err(dir.corrupt("directory index", "too many leaves of the same hash"));
        }
        gather_chain(listing.style, hasher, scratch, start);
        // Bit 0 says that the leaf goes on with the hash that the one before ended with.
        match cursor.advance(&mut fs, dir)? {
            None => return Ok(false),
            Some(hash) if hash & 1 == 0 => return Ok(true),
            Some(_) => {}
        }
    }
}

/// Copies the entries of a directory that has one block or none.
fn gather_single(
    listing: &Listing<'_>,
    hasher: &NameHasher,
    scratch: &mut Scratch,
) -> Result<bool> {
    let Listing { mut fs, dir, style, .. } = *listing;
    if dir.has_flag(flags::INLINE_DATA) {
        let contents = inline::contents(fs, dir)?;
        for (_, part) in directory::inline_parts(fs, dir, &contents)? {
            let start = scratch.bytes.len();
            scratch.bytes.extend_from_slice(part);
            gather_chain(style, hasher, scratch, start);
        }
    } else if let Some(place) = fs.place(dir, FileBlock(0))? {
        scratch.bytes.extend_from_slice(&fs.block(place, Kind::DirectoryLeaf.of(dir.owner))?);
        gather_chain(style, hasher, scratch, 0);
    }
    Ok(false)
}

/// Enters the records of a chain, which starts at byte `start`, into the list; but for `.` and `..`.
fn gather_chain(style: Style, hasher: &NameHasher, scratch: &mut Scratch, start: usize) {
    let Scratch { bytes, items, name } = scratch;
    for record in dirent::entries(&bytes[start..]) {
        if matches!(record.name, b"." | b"..") {
            continue;
        }
        let hash = style.hash(hasher, record.name, name);
        // The legacy hash has no minor half to tell names of equal hash apart.
        let minor = match hasher.version {
            HashVersion::Legacy => crc32c(0, record.name),
            HashVersion::HalfMd4 | HashVersion::Tea => hash.minor,
        };
        items.push(Item {
            key: u64::from(hash.major >> 1) << 32 | u64::from(minor),
            name_start: (start + record.offset + dirent::HEADER_SIZE) as u32,
            inode: record.inode,
            name_len: record.name.len() as u8,
            file_type: record.file_type,
        });
    }
}
