//! Open inodes and orphans: an open inode stays in use even without a name.
//!
//! An open inode that loses its last name becomes an orphan. So does an inode that is too large to be freed in the
//! operation that removes its name. Each orphan is recorded on disk in the operation that makes it one, so that the
//! next opening after a crash can finish it. The last reference inactivates it: everything that it has is freed, in as
//! many operations as necessary.
//!
//! Each format records orphans in a structure of its own: slots of a file or a list in ext4, 64 lists of each group in
//! XFS. [`OrphanChanges`] is the common part of the formats' operations.
//!
//! Only the exclusive holder of an inode's lock makes it an orphan or ends that.

mod changes;
mod held;

use vfs::{Error, Ino, Result};

use crate::inode::Inodes;
use crate::opens::OpenInodes;

pub use changes::{OrphanChanges, OrphanPointer, Turn};
pub use held::{Chains, HeldChains};

/// State of an inode after an operation removed a name from it.
#[must_use = "the caller must free an orphan that is not open with `inactivate`"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactivation {
    /// It has other names.
    Kept,
    /// It is free.
    Freed,
    /// It is an orphan: open, and freed when it is closed, or too large to be freed in one operation.
    Orphan(Ino),
}

/// A file system that frees inodes without names when they are not open.
pub trait InactivateInodes: Inodes {
    /// Place of an orphan's record.
    type Place: Copy;

    /// Returns the open inodes and orphans.
    fn opens(&self) -> &OpenInodes<Self::Place>;

    /// Returns whether an inode belongs to the file system itself, so that no name may lead to it and it cannot be
    /// opened.
    fn is_own(&self, inode: &Self::Inode) -> bool;

    /// Frees an orphan without names, in as many operations as necessary. Its lock is held.
    ///
    /// # Errors
    /// Returns the errors of reading and freeing. The inode stays an orphan then.
    fn free_orphan(&self, ino: Ino) -> Result<()>;

    /// Returns whether an orphan, whose lock is held, has names and must be kept. Always false in some formats.
    ///
    /// # Errors
    /// Read errors.
    fn has_names(&self, _: Ino) -> Result<bool> {
        Ok(false)
    }

    /// Removes the record of an orphan that has names. Its lock is held.
    ///
    /// # Errors
    /// Returns the errors of reading and changing it.
    fn end_named_orphan(&self, _: Ino) -> Result<()> {
        Ok(())
    }
}

/// Adds a reference to an inode in use.
///
/// # Errors
/// `NotFound` if it is not in use, or belongs to the file system itself; read errors; if the number of references would
/// overflow.
pub(crate) fn open_inode<F: InactivateInodes>(fs: &F, ino: Ino) -> Result<()> {
    let _lock = fs.locks().shared(ino);
    if fs.is_own(&fs.load(ino)?) {
        return Err(Error::NotFound);
    }
    fs.opens().open(ino)
}

/// Drops a reference, and frees the inode if it was the last one and there is no name. If freeing fails, the inode
/// stays an orphan and is freed when the file system is closed or opened next.
///
/// # Errors
/// If the inode is not open; read errors.
pub(crate) fn close_inode<F: InactivateInodes>(fs: &F, ino: Ino) -> Result<()> {
    if fs.opens().close(ino)?.is_some() {
        return Ok(());
    }
    let _lock = fs.locks().exclusive(&[ino]);
    if fs.opens().close_last(ino)? && !fs.has_names(ino)? {
        let _ = fs.free_orphan(ino);
    }
    Ok(())
}

/// Frees an orphan that an operation left, unless it is open. This covers a reference that was dropped before the inode
/// was known as an orphan. The caller must still hold the inode's lock.
///
/// The operation that removed the name has been committed, so errors are ignored: the inode stays an orphan and is
/// freed when the file system is closed or opened next.
pub fn inactivate<F: InactivateInodes>(fs: &F, inactivation: Inactivation) {
    match inactivation {
        Inactivation::Orphan(ino) if !fs.opens().is_open(ino) => {
            let _ = fs.free_orphan(ino);
        }
        _ => {}
    }
}

/// Finishes an orphan. Returns whether it was freed, because it has no names.
///
/// # Errors
/// Returns the errors of reading, freeing and changing it.
pub fn end_orphan<F: InactivateInodes>(fs: &F, ino: Ino) -> Result<bool> {
    let _lock = fs.locks().exclusive(&[ino]);
    let has_names = fs.has_names(ino)?;
    if has_names {
        fs.end_named_orphan(ino)?;
    } else {
        fs.free_orphan(ino)?;
    }
    Ok(!has_names)
}

/// Finishes all orphans, open or not, and returns how many were freed. Called at the end, when none can be closed any
/// more.
///
/// # Errors
/// Returns the errors of [`end_orphan`].
pub fn inactivate_all<F: InactivateInodes>(fs: &F) -> Result<u64> {
    let mut freed = 0;
    for ino in fs.opens().close_all() {
        freed += u64::from(end_orphan(fs, ino)?);
    }
    Ok(freed)
}
