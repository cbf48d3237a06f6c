//! Links: their effect on inodes, link counts, and additional names.

use vfs::names::check_name;
use vfs::{Error, FileType, Ino, Result, Timestamp};

use super::{Directories, Entry, load_named, lock_entry, taken_first};
use crate::Outcome;
use crate::inode::{InodeHandle, load_dir};
use crate::orphans::{InactivateInodes, Inactivation, inactivate};

/// Links of a directory without subdirectories: its name and its `.`.
const LINKS_EMPTY_DIR: u32 = 2;

/// Effect of links on the inodes of a format.
pub trait LinkEffects: InactivateInodes {
    /// Maximum number of links of an inode.
    const LINKS_MAX: u32;

    /// Checks that an inode may get a name in `dir`. If `dir` has an inherited project, the inode must belong to it.
    ///
    /// # Errors
    /// `OtherProject` if not.
    fn check_project(&self, dir: &Self::Inode, inode: &Self::Inode) -> Result<()>;

    /// Adds the link of a new subdirectory's `..`.
    ///
    /// # Errors
    /// `TooManyLinks`.
    fn add_subdirectory(&self, parent: &mut Self::Inode) -> Result<()> {
        let links = parent.links();
        if links >= Self::LINKS_MAX {
            return Err(Error::TooManyLinks);
        }
        parent.set_links(links + 1);
        Ok(())
    }

    /// Adds a parent pointer to an inode. Does nothing if the format has none.
    ///
    /// # Errors
    /// `NoSpace`; read errors.
    fn add_parent(
        _op: &mut Self::Op<'_>,
        _inode: &mut Self::Inode,
        _link: (&Self::Inode, &[u8]),
    ) -> Outcome<()> {
        Ok(())
    }

    /// Replaces a parent pointer of an inode.
    ///
    /// # Errors
    /// Returns the errors of [`LinkEffects::add_parent`].
    fn replace_parent(
        _op: &mut Self::Op<'_>,
        _inode: &mut Self::Inode,
        _from: (&Self::Inode, &[u8]),
        _to: (&Self::Inode, &[u8]),
    ) -> Outcome<()> {
        Ok(())
    }

    /// Removes a link from an inode, whose lock is held, and stages it. If that was its last name (a directory has only
    /// one), it is freed or becomes an orphan.
    ///
    /// # Errors
    /// Read errors.
    fn take_name(
        op: &mut Self::Op<'_>,
        before: &Self::Inode,
        link: (&Self::Inode, &[u8]),
        time: Option<Timestamp>,
    ) -> Outcome<Inactivation>;

    /// Makes an inode without names an orphan when the operation commits.
    fn add_orphan(op: &mut Self::Op<'_>, inode: &Self::Inode);

    /// Removes an inode that gets a name from the orphans when the operation commits.
    fn remove_orphan(op: &mut Self::Op<'_>, inode: &Self::Inode);
}

/// Removes the link of a subdirectory's `..`, unless the directory has more links than the format counts.
pub fn drop_subdirectory<I: InodeHandle>(parent: &mut I) {
    let links = parent.links();
    if links > LINKS_EMPTY_DIR {
        parent.set_links(links - 1);
    }
}

/// Adds a name to an inode, as [`vfs::FileSystem::link`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub fn link<F>(fs: &F, ino: Ino, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>
where
    F: Directories + LinkEffects,
{
    fs.mode().check_writable()?;
    check_name(name)?;
    let _lock = fs.locks().exclusive(&[ino, dir]);
    let before = load_dir(fs, dir)?;
    let added = link_in(fs, (&before, name), ino, time);
    taken_first(fs, (&before, name), added)
}

fn link_in<F>(
    fs: &F,
    (dir, name): (&F::Inode, &[u8]),
    ino: Ino,
    time: Option<Timestamp>,
) -> Result<()>
where
    F: Directories + LinkEffects,
{
    let file = load_linkable(fs, ino)?;
    let entry = Entry::to(name, &file)?;
    dir.protection().check_addition()?;
    fs.check_project(dir, &file)?;
    fs.atomically(|op| {
        let mut parent = dir.clone();
        F::add_entry(op, &mut parent, entry)?;
        stage_named::<F>(op, parent, (dir, name), file.clone(), time)
    })
}

/// Loads an inode that can have another name.
fn load_linkable<F: LinkEffects>(fs: &F, ino: Ino) -> Result<F::Inode> {
    // An inode without names is in use as long as it is open.
    let file = fs.load(ino)?;
    if file.file_type()? == FileType::Directory {
        return Err(Error::IsADirectory);
    }
    file.protection().check_change()?;
    if file.links() >= F::LINKS_MAX {
        return Err(Error::TooManyLinks);
    }
    Ok(file)
}

/// Replaces the inode of an existing name, as [`vfs::FileSystem::link_over`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub(crate) fn link_over<F>(
    fs: &F,
    ino: Ino,
    dir: Ino,
    name: &[u8],
    time: Option<Timestamp>,
) -> Result<()>
where
    F: Directories + LinkEffects,
{
    fs.mode().check_writable()?;
    if matches!(name, b"." | b"..") {
        return Err(Error::IsADirectory);
    }
    let (_locked, before, found) = lock_entry(fs, (dir, name), Some(ino))?;
    let file = load_linkable(fs, ino)?;
    fs.check_project(&before, &file)?;
    let taken = load_named(fs, &before, &found)?;
    if taken.is_dir() {
        return Err(Error::IsADirectory);
    }
    if taken.ino() == ino {
        return Ok(());
    }
    before.protection().check_removal(taken.protection())?;
    let name = &*fs.stored_name(&before, name, &found)?;
    let entry = Entry::to(name, &file)?;
    let inactivation = fs.atomically(|op| {
        let mut parent = before.clone();
        F::replace_entry(op, &mut parent, &found, entry)?;
        stage_named::<F>(op, parent, (&before, name), file.clone(), time)?;
        F::take_name(op, &taken, (&before, name), time)
    })?;
    inactivate(fs, inactivation);
    Ok(())
}

/// Stages a directory, given in its new and old state, and an inode that got a name in it.
fn stage_named<F>(
    op: &mut F::Op<'_>,
    mut dir: F::Inode,
    (before, name): (&F::Inode, &[u8]),
    mut file: F::Inode,
    time: Option<Timestamp>,
) -> Outcome<()>
where
    F: Directories + LinkEffects,
{
    F::add_parent(op, &mut file, (before, name))?;
    let links = file.links();
    file.set_links(links + 1);
    if let Some(time) = time {
        file.set_ctime(time);
    }
    dir.touch(time);
    F::stage_dir(op, dir, before)?;
    if links == 0 {
        F::remove_orphan(op, &file);
    }
    F::stage(op, file);
    Ok(())
}
