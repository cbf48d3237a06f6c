//! Directories in all their forms, which map names to inodes.
//!
//! A directory takes the smallest form that its entries fit into, and changes it one step at a time: shortform, block,
//! leaf, node (see [`crate::format::dir`]).
//!
//! - A [`View`] reads a directory, through the cache or through an operation.
//! - A [`DirChange`] changes it within an operation. Each form has its own file.
//! - A [`node::NodeChange`] changes a directory of node form, and its state in memory.

mod block;
mod buffered;
mod change;
mod find;
mod flush;
mod forms;
pub(crate) mod free;
mod index;
mod insert_buffer;
mod leaf;
mod list;
mod maps;
mod node;
mod node_data;
mod read_state;
mod short;
#[cfg(test)]
mod speed;
mod state;
mod store;
mod tag;
mod view;
mod whole;
mod write_wholes;

use operations::Outcome;
use std::ops::ControlFlow;

pub(crate) use operations::names::Entry;
use operations::profile::ListingClock;
use vfs::{Cookie, DirEntry, FileType, Ino, NAME_LEN_MAX, Result};

use crate::XfsCore;
use crate::format::dir::data::NewEntry;
use crate::inode::Handle;
use crate::op::Op;
use crate::op::source::Source;
use view::View;

pub(crate) use change::DirChange;
pub(crate) use find::Spot;
#[cfg(feature = "free-index-strategies")]
pub(crate) use free::FreeIndexStrategy;
pub(crate) use insert_buffer::BufferedAddresses;
pub use store::InsertBuffering;
pub(crate) use store::{DirStates, TakenStates};
pub(crate) use whole::Wholes;

impl<'n> From<Entry<'n>> for NewEntry<'n> {
    fn from(entry: Entry<'n>) -> Self {
        Self { name: entry.name, ino: entry.ino, file_type: entry.file_type }
    }
}

/// The inode that a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundInode {
    pub(crate) ino: Ino,
    /// The file type, if the directory stores it.
    pub(crate) file_type: Option<FileType>,
}

/// Looks a name up, including `.` and `..`.
pub(crate) fn lookup(
    source: &mut impl Source,
    dir: &Handle,
    name: &[u8],
) -> Result<Option<FoundInode>> {
    if name == b"." {
        return Ok(Some(FoundInode { ino: dir.ino(), file_type: Some(FileType::Directory) }));
    }
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Ok(None);
    }
    View::new(source, dir).lookup(name)
}

/// Looks up a name that is to be changed. In node form, also returns the location of its entry, which saves a second
/// search. The directory must stay locked until it is changed.
pub(crate) fn locate(
    fs: &XfsCore,
    dir: &Handle,
    name: &[u8],
) -> Result<Option<(FoundInode, Option<Spot>)>> {
    if matches!(name, b"." | b".." | b"") || name.len() > NAME_LEN_MAX {
        return Ok(lookup(&mut &*fs, dir, name)?.map(|found| (found, None)));
    }
    View::new(&mut &*fs, dir).locate(name)
}

/// Returns the name as stored in the entry that matches `name`, for directories that ignore case. The entry must have
/// been found under the current lock of the directory.
///
/// # Errors
/// `Corrupt` if there is no such entry; errors of reading.
pub(crate) fn stored_name(fs: &XfsCore, dir: &Handle, name: &[u8]) -> Result<Vec<u8>> {
    let stored = View::new(&mut &*fs, dir).stored_name(name)?;
    stored.ok_or_else(|| dir.corrupt("directory entry", "the locked entry is missing"))
}

/// Returns whether a directory has no entries except `.` and `..`.
pub(crate) fn is_empty(source: &mut impl Source, dir: &Handle) -> Result<bool> {
    let mut is_empty = true;
    for_each_entry(source, dir, &mut |_| {
        is_empty = false;
        ControlFlow::Break(())
    })?;
    Ok(is_empty)
}

/// Calls `each` with all entries except `.` and `..`.
pub(crate) fn for_each_entry(
    source: &mut impl Source,
    dir: &Handle,
    each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut clock = ListingClock::off();
    View::new(source, dir).list(Cookie(0), &mut clock, &mut |entry| match entry.name {
        b"." | b".." => ControlFlow::Continue(()),
        _ => each(entry),
    })
}

/// Lists a directory, as [`vfs::FileSystem::readdir`] does.
pub(crate) fn readdir(
    fs: &XfsCore,
    dir: &Handle,
    from: Cookie,
    clock: &mut ListingClock<'_>,
    each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    View::new(&mut &*fs, dir).list(from, clock, each)
}

impl XfsCore {
    /// Drops the state of a directory whose inode number gets a new inode.
    fn forget_dir(&self, ino: Ino) {
        self.dirs.forget(ino);
    }

    /// Chooses how large directories find room for new entries. It affects only the positions of entries on disk.
    #[cfg(feature = "free-index-strategies")]
    pub fn set_free_index(&mut self, strategy: FreeIndexStrategy) {
        self.free_index = strategy;
        self.dirs.read_all_again();
    }

    /// Sets when large directories have an insert buffer. This affects only speed and memory. Directories with a state
    /// in memory keep their number of names buffered per leaf.
    pub fn set_insert_buffering(&self, buffering: InsertBuffering) {
        self.dirs.set_buffering(buffering);
    }
}

impl Op<'_> {
    /// Makes a new inode an empty directory below `parent` (itself for the root).
    pub(crate) fn init_dir(&mut self, dir: &mut Handle, parent: Ino) -> Outcome<()> {
        self.fs.forget_dir(dir.ino());
        DirChange::new(self, dir).init(parent);
        Ok(())
    }

    /// Adds an entry. Fails with `Exists` if the name exists.
    pub(crate) fn add_entry(&mut self, dir: &mut Handle, entry: Entry<'_>) -> Outcome<()> {
        DirChange::new(self, dir).add(entry)
    }

    /// Removes an entry and returns the inode it named. Fails with `NotFound` if there is none. `hint` is the location
    /// found under the current lock of the directory.
    pub(crate) fn remove_entry(
        &mut self,
        dir: &mut Handle,
        name: &[u8],
        hint: Option<&Spot>,
    ) -> Outcome<FoundInode> {
        DirChange::new(self, dir).remove(name, hint)
    }

    /// Changes the inode of an existing entry (also `..`), and returns the previous one. Fails with `NotFound` if there
    /// is none.
    pub(crate) fn replace_entry(
        &mut self,
        dir: &mut Handle,
        entry: Entry<'_>,
    ) -> Outcome<FoundInode> {
        DirChange::new(self, dir).replace(entry)
    }
}
