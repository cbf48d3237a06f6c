//! Directories in all their forms: names to inodes.
//!
//! A directory takes the smallest form that its entries fit into, and changes it one step at a time:
//! shortform, block, leaf, node ([`crate::format::dir`] says what these are).

mod block;
mod buffers;
mod find;
pub(crate) mod free;
mod index;
mod leaf;
mod list;
mod node;
mod settle;
mod short;
#[cfg(test)]
mod speed;
mod state;
mod store;
mod view;
mod waiting;
mod whole;

use std::ops::ControlFlow;

use vfs::{Cookie, DirEntry, Error, FileType, Ino, ListingClock, NAME_LEN_MAX, Result};

use crate::Xfs;
use crate::format::dir::Part;
use crate::format::dir::data::{self, NewEntry};
use crate::inode::Handle;
use crate::op::Op;
use crate::source::Source;
use find::Form;
use view::View;

pub(crate) use find::{Spot, Waiting};
#[cfg(test)]
use free::FreeIndexStrategy;
pub use store::LeafBuffering;
pub(crate) use store::{States, Taken};
pub(crate) use whole::Wholes;

/// An entry to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'n> {
    pub(crate) name: &'n [u8],
    pub(crate) ino: Ino,
    pub(crate) file_type: FileType,
}

impl<'n> From<Entry<'n>> for NewEntry<'n> {
    fn from(entry: Entry<'n>) -> Self {
        Self { name: entry.name, ino: entry.ino, file_type: entry.file_type }
    }
}

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) ino: Ino,
    /// The type, where the directory says so.
    pub(crate) file_type: Option<FileType>,
}

/// Most steps from one form to another that one entry can bring about.
const STEPS_MAX: usize = 4;

/// Looks a name up, `.` and `..` too.
pub(crate) fn lookup(source: &mut impl Source, dir: &Handle, name: &[u8]) -> Result<Option<Found>> {
    if name == b"." {
        return Ok(Some(Found { ino: dir.ino(), file_type: Some(FileType::Directory) }));
    }
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Ok(None);
    }
    View::new(source, dir).lookup(name)
}

/// Looks a name up that is to be changed, and says where its entry is if that helps to find it again. The
/// directory stays locked until it is changed.
pub(crate) fn locate(fs: &Xfs, dir: &Handle, name: &[u8]) -> Result<Option<(Found, Option<Spot>)>> {
    if matches!(name, b"." | b".." | b"") || name.len() > NAME_LEN_MAX {
        return Ok(lookup(&mut &*fs, dir, name)?.map(|found| (found, None)));
    }
    View::new(&mut &*fs, dir).locate(name)
}

/// Whether a directory has no entries but `.` and `..`.
pub(crate) fn is_empty(source: &mut impl Source, dir: &Handle) -> Result<bool> {
    let mut is_empty = true;
    for_each_entry(source, dir, &mut |_| {
        is_empty = false;
        ControlFlow::Break(())
    })?;
    Ok(is_empty)
}

/// Shows all entries but `.` and `..`.
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

/// Lists a directory as [`vfs::FileSystem::readdir`] does.
pub(crate) fn readdir(
    fs: &Xfs,
    dir: &Handle,
    from: Cookie,
    clock: &mut ListingClock<'_>,
    each: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
    View::new(&mut &*fs, dir).list(from, clock, each)
}

impl Op<'_> {
    /// Makes a new inode an empty directory below `parent` (itself for the root).
    pub(crate) fn init_dir(&mut self, dir: &mut Handle, parent: Ino) -> Result<()> {
        self.fs.forget_dir(dir.ino());
        short::init(&self.dir_layout(), dir, parent);
        Ok(())
    }

    fn form_of(&mut self, dir: &Handle) -> Result<Form> {
        if self.has_state(dir) {
            return Ok(Form::Node);
        }
        View::new(self, dir).form()
    }

    /// Adds an entry. `Exists` if the name is taken.
    pub(crate) fn add_entry(&mut self, dir: &mut Handle, entry: Entry<'_>) -> Result<()> {
        for _ in 0..STEPS_MAX {
            match self.form_of(dir)? {
                Form::Short => {
                    if self.find_short(dir, entry.name)?.is_some() {
                        return Err(Error::Exists);
                    }
                    if self.add_short(dir, entry)? {
                        return Ok(());
                    }
                    self.short_to_block(dir)?;
                }
                Form::Block => {
                    if self.add_block(dir, entry)? {
                        return Ok(());
                    }
                    self.block_to_leaf(dir)?;
                }
                Form::Leaf => {
                    if self.add_leaf(dir, entry)? {
                        return Ok(());
                    }
                    self.leaf_to_node(dir)?;
                }
                Form::Node => {
                    return self.with_state(dir, |op, dir, state| op.add_node(dir, state, entry));
                }
            }
        }
        Err(dir.corrupt("directory", "an entry fits into no form"))
    }

    /// Removes an entry and says what it led to. `NotFound` if there is none. `hint` is where it was found
    /// since the directory was locked.
    pub(crate) fn remove_entry(
        &mut self,
        dir: &mut Handle,
        name: &[u8],
        hint: Option<&Spot>,
    ) -> Result<Found> {
        match self.form_of(dir)? {
            Form::Short => {
                let (found, offset) = self.find_short(dir, name)?.ok_or(Error::NotFound)?;
                self.remove_short(dir, offset)?;
                Ok(found)
            }
            Form::Block => self.remove_block(dir, name),
            Form::Leaf => self.remove_leaf(dir, name),
            Form::Node => {
                self.with_state(dir, |op, dir, state| op.remove_node(dir, state, name, hint))
            }
        }
    }

    /// Makes a name that is there (`..` too) lead elsewhere, and says what it led to. `NotFound` if
    /// there is none.
    pub(crate) fn replace_entry(&mut self, dir: &mut Handle, entry: Entry<'_>) -> Result<Found> {
        let form = self.form_of(dir)?;
        if form == Form::Short {
            let (found, offset) = self.find_short(dir, entry.name)?.ok_or(Error::NotFound)?;
            if self.replace_short(dir, offset, entry)? {
                return Ok(found);
            }
            // A larger inode number does not fit into the inode.
            self.short_to_block(dir)?;
        }
        let layout = self.dir_layout();
        let mut view = View::new(self, dir);
        let spot = match form {
            Form::Short | Form::Block => view.find_in_block(entry.name)?,
            Form::Leaf | Form::Node => view.search(entry.name)?.spot,
        };
        let spot = spot.ok_or(Error::NotFound)?;
        let buf = self.dir_buffer(dir, None, layout.data_at(spot.number), Part::Data)?;
        data::replace(&layout, &mut self.held(buf), spot.offset, &entry.into());
        Ok(spot.found)
    }
}
