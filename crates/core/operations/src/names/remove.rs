//! Removal of names.

use vfs::{Error, FileType, Ino, Result, Timestamp};

use super::{Directories, LinkEffects, drop_subdirectory, load_named, lock_entry, require_empty};
use crate::inode::InodeHandle;
use crate::orphans::inactivate;

/// Removes a name of a non-directory, as [`vfs::FileSystem::unlink`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub(crate) fn unlink<F>(fs: &F, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>
where
    F: Directories + LinkEffects,
{
    fs.mode().check_writable()?;
    if matches!(name, b"." | b"..") {
        return Err(Error::IsADirectory);
    }
    let (_locked, parent, found) = lock_entry(fs, (dir, name), None)?;
    let child = load_named(fs, &parent, &found)?;
    parent.protection().check_removal(child.protection())?;
    if child.file_type()? == FileType::Directory {
        return Err(Error::IsADirectory);
    }
    let name = &*fs.stored_name(&parent, name, &found)?;
    remove_found(fs, &parent, (name, &found), &child, time)
}

/// Removes an empty directory, as [`vfs::FileSystem::rmdir`] specifies.
///
/// # Errors
/// Returns the errors of that method.
pub(crate) fn rmdir<F>(fs: &F, dir: Ino, name: &[u8], time: Option<Timestamp>) -> Result<()>
where
    F: Directories + LinkEffects,
{
    fs.mode().check_writable()?;
    match name {
        b"." => return Err(Error::Invalid("a directory cannot be removed as '.'")),
        b".." => return Err(Error::NotEmpty),
        _ => {}
    }
    let (_locked, parent, found) = lock_entry(fs, (dir, name), None)?;
    let child = load_named(fs, &parent, &found)?;
    parent.protection().check_removal(child.protection())?;
    child.require_directory()?;
    require_empty(fs, &child)?;
    let name = &*fs.stored_name(&parent, name, &found)?;
    remove_found(fs, &parent, (name, &found), &child, time)
}

/// Removes an entry from a directory and the link from its inode; both are locked.
fn remove_found<F>(
    fs: &F,
    before: &F::Inode,
    (name, found): (&[u8], &F::Found),
    child: &F::Inode,
    time: Option<Timestamp>,
) -> Result<()>
where
    F: Directories + LinkEffects,
{
    let inactivation = fs.atomically_freeing(|op| {
        let mut parent = before.clone();
        F::remove_entry(op, &mut parent, name, found)?;
        if child.is_dir() {
            drop_subdirectory(&mut parent);
        }
        parent.touch(time);
        F::stage_dir(op, parent, before)?;
        F::take_name(op, child, (before, name), time)
    })?;
    inactivate(fs, inactivation);
    Ok(())
}
