//! Listing of directories.
//!
//! Hashed directories are listed in hash order, as the kernel does. The cookie of an entry is `(major >> 1) << 32 |
//! minor` of its name's hash, so it does not change when other entries are added or removed or when leaves split. The
//! legacy hash has no minor half; a checksum of the name replaces it. If all 63 bits of two names are equal, which
//! requires deliberate collisions, the second cookie is incremented; that entry is missed if the first is removed
//! during the listing. Directories of one block and inline directories also use hash order if the file system indexes
//! directories, so that cookies stay valid when they grow. Other directories are listed in block order with the byte
//! offset as cookie. `next` of an entry is its cookie plus one, or the offset of the following record.
//!
//! Listing allocates nothing per entry: blocks are copied to a reusable [`Scratch`], and no lock is held while the
//! callback runs.

mod hashed;

use std::ops::ControlFlow;

use operations::inode::InodeHandle;
use operations::profile::{ListingClock, ListingStep};
use vfs::{Cookie, Corruption, DirEntry, FileType, Ino, Result};

use crate::Ext4Core;
use crate::dir::compare::{NameEncoding, is_possible};
use crate::dir::encrypted::EncryptedNames;
use crate::dir::index;
use crate::dir::{self, for_each_leaf};
use crate::format::address::FileBlock;
use crate::format::dirent::{self, DirRecord};
use crate::format::features::Incompat;
use crate::format::hash::NameHash;
use crate::format::inode::flags;
use crate::inode::Handle;
use crate::inode::inline;
use crate::op::source::BlockSource;
use hashed::{Leaves, in_hash_order};

/// Callback that receives each entry until it breaks.
pub(crate) type Each<'a> = dyn FnMut(DirEntry<'_>) -> ControlFlow<()> + 'a;

/// Reusable buffers for a listing.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Copies of the listed blocks.
    bytes: Vec<u8>,
    /// Their entries, to be sorted.
    items: Vec<ScratchEntry>,
    /// The same entries during sorting.
    spread: Vec<ScratchEntry>,
    /// Start index of the entries of each range of keys.
    starts: Vec<u32>,
    /// A name in its displayed or hashed form.
    name: Vec<u8>,
}

/// An entry of a block in a [`Scratch`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ScratchEntry {
    key: u64,
    name_start: u32,
    inode: u32,
    name_len: u8,
    file_type: u8,
}

/// A directory listing: the state common to all listing orders.
pub(crate) struct DirectoryListing<'l> {
    fs: &'l Ext4Core,
    dir: &'l Handle,
    style: NameEncoding,
    /// Names of an encrypted directory. Set when the listing starts.
    encrypted: Option<EncryptedNames>,
    has_types: bool,
    clock: ListingClock<'l>,
}

impl<'l> DirectoryListing<'l> {
    /// Returns a listing whose steps are measured with `clock`.
    pub(crate) fn new(fs: &'l Ext4Core, dir: &'l Handle, clock: ListingClock<'l>) -> Self {
        let has_types = fs.volume.sb.features.incompat(Incompat::FILETYPE);
        Self { fs, dir, style: NameEncoding::of(dir), encrypted: None, has_types, clock }
    }

    /// Lists the directory from `from` on, `.` and `..` first. An entry on which `each` breaks counts as delivered.
    pub(crate) fn readdir(
        &mut self,
        from: Cookie,
        scratch: &mut Scratch,
        each: &mut Each<'_>,
    ) -> Result<()> {
        let Self { mut fs, dir, .. } = *self;
        dir.require_directory()?;
        self.encrypted = EncryptedNames::of(fs, dir)?;
        let (leaves, version, parent) = if index::is_indexed(fs, dir) {
            let (info, parent) = index::root(&mut fs, dir)?;
            (Leaves::Indexed(info), info.hash_version, Some(Ino(parent.into())))
        } else if fs.volume.dir_index && dir::blocks_count(fs, dir)? <= 1 {
            (Leaves::Single, fs.volume.default_hash_version(), dir::parent(&mut fs, dir)?)
        } else {
            return in_place_order(self, from, scratch, each);
        };
        match (fs.volume.hasher(version), parent) {
            (Some(hasher), Some(parent)) => {
                in_hash_order(self, leaves, parent, &hasher, from, scratch, each)
            }
            _ => in_place_order(self, from, scratch, each),
        }
    }

    /// Reports all entries, `.` and `..` included, in the order that is fastest to read. Their cookies are invalid.
    pub(crate) fn for_each_entry(
        &mut self,
        scratch: &mut Scratch,
        each: &mut Each<'_>,
    ) -> Result<()> {
        self.dir.require_directory()?;
        self.encrypted = EncryptedNames::of(self.fs, self.dir)?;
        in_place_order(self, Cookie(0), scratch, each)
    }

    /// Returns the displayed form of the name of a record at `offset`, in `scratch` if it must be built. Returns `None`
    /// for a name that no directory can contain.
    fn show<'a>(
        &self,
        chain: &[u8],
        offset: usize,
        stored: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        match &self.encrypted {
            None => is_possible(stored).then_some(stored),
            Some(names) if names.has_stored_hashes => {
                names.show(stored, dirent::stored_hash(chain, offset, stored.len()), scratch)
            }
            Some(names) => names.show(stored, NameHash { major: 0, minor: 0 }, scratch),
        }
    }

    /// Reports one entry. `chain` contains its record at `offset`, and `file_type` is the type byte of the record.
    fn deliver(
        &self,
        (chain, offset, stored): (&[u8], usize, &[u8]),
        (inode, file_type, next): (u32, u8, u64),
        name: &mut Vec<u8>,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        let Some(name) = self.show(chain, offset, stored, name) else {
            let shown = String::from_utf8_lossy(stored).into_owned();
            return Err(Corruption::new("directory entry", "an invalid name")
                .of_inode(self.dir.ino().0)
                .mismatch("no '/' and no zero byte", shown)
                .into());
        };
        let file_type = if self.has_types { dirent::file_type_from_code(file_type) } else { None };
        Ok(each(DirEntry { name, ino: Ino(inode.into()), file_type, next: Cookie(next) }))
    }

    /// Reports `.` or `..` unless the listing starts after it.
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

    /// Reports the records of a verified chain from cookie `from` on. The chain starts at cookie `start`. Returns the
    /// number of reported entries without dots, and whether to continue.
    fn deliver_chain(
        &self,
        chain: &[u8],
        start: u64,
        from: Cookie,
        name: &mut Vec<u8>,
        each: &mut Each<'_>,
    ) -> Result<(u64, ControlFlow<()>)> {
        let mut delivered = 0;
        for record in dirent::entries(chain) {
            let at = start + record.offset as u64;
            let next = at + record.rec_len as u64;
            if at >= from.0 {
                let DirRecord { inode, file_type, .. } = record;
                delivered += u64::from(!is_dot(record.name));
                let stored = (chain, record.offset, record.name);
                let flow = self.deliver(stored, (inode, file_type, next), name, each)?;
                if flow.is_break() {
                    return Ok((delivered, flow));
                }
            }
        }
        Ok((delivered, ControlFlow::Continue(())))
    }
}

fn in_place_order(
    listing: &mut DirectoryListing<'_>,
    from: Cookie,
    scratch: &mut Scratch,
    each: &mut Each<'_>,
) -> Result<()> {
    let DirectoryListing { mut fs, dir, .. } = *listing;
    if dir.has_flag(flags::INLINE_DATA) {
        return in_inode(listing, from, scratch, each);
    }
    let log = fs.volume.geometry.block_size_log;
    let Ok(first) = u32::try_from(from.0 >> log) else { return Ok(()) };
    let Scratch { bytes, name, .. } = scratch;
    for_each_leaf(&mut fs, dir, FileBlock(first), &mut |fs, block, place, kind| {
        bytes.clear();
        fs.with(place, kind.of(dir.owner), |block| bytes.extend_from_slice(block))?;
        listing.clock.lap(ListingStep::Reading);
        let start = u64::from(block.0) << log;
        let (delivered, flow) = listing.deliver_chain(bytes, start, from, name, each)?;
        listing.clock.lap(ListingStep::Delivering);
        listing.clock.count(1, delivered);
        Ok(flow)
    })
}

/// Lists an inline directory. The cookies stay valid when the directory is converted to a block.
fn in_inode(
    listing: &mut DirectoryListing<'_>,
    from: Cookie,
    scratch: &mut Scratch,
    each: &mut Each<'_>,
) -> Result<()> {
    let DirectoryListing { fs, dir, .. } = *listing;
    let contents = inline::contents(fs, dir)?;
    let parent = Ino(dir::inline_parent(dir).into());
    let dots = [(0, dir.ino()), (dirent::record_size(1), parent)];
    for (position, ino) in dots {
        if listing.deliver_dot(position as u64, ino, from, each).is_break() {
            return Ok(());
        }
    }
    let parts = dir::inline_parts(fs, dir, &contents)?;
    listing.clock.lap(ListingStep::Reading);
    for (start, part) in parts {
        let start = (start + dir::INLINE_SHIFT) as u64;
        let (delivered, flow) =
            listing.deliver_chain(part, start, from, &mut scratch.name, each)?;
        listing.clock.count(0, delivered);
        if flow.is_break() {
            break;
        }
    }
    listing.clock.lap(ListingStep::Delivering);
    Ok(())
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
