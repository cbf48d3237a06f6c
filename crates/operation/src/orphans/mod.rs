//! Open inodes and orphans: inodes live as long as they are open, though no name leads to them any more.
//!
//! An inode that is open when it loses its last name becomes an orphan, and so does one that is too much to
//! be freed in the operation that takes the name. Each orphan is recorded on disk, in the operation that
//! makes it one, so that whoever opens the file system after a crash ends it. The last reference
//! inactivates it: everything that it has is freed, in as many operations as that takes.
//!
//! Where orphans are recorded is the format's affair: slots of a file or a list in ext4, 64 lists of each
//! group in XFS. [`OrphanChanges`] has what the formats' operations have in common.
//!
//! Only the holder of an inode's lock, exclusively, makes it an orphan or ends that.

mod changes;
mod held;

use vfs::{Error, Ino, Result};

use crate::inode::Inodes;
use crate::opens::OpenInodes;

pub use changes::{Link, OrphanChanges, Turn};
pub use held::{Chains, HeldChains};

/// What an operation leaves of an inode that it took a name from.
#[must_use = "an orphan that nobody has open is freed by `inactivate`"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inactivation {
    /// All: it has other names.
    Kept,
    /// Nothing: it is free.
    Freed,
    /// An orphan: it is open and freed when it is closed, or too much to be freed in one operation.
    Orphan(Ino),
}

/// A file system that frees inodes without names when nobody has them open.
pub trait InactivateInodes: Inodes {
    /// Where an orphan is recorded.
    type Place: Copy;

    /// Its open inodes and orphans.
    fn opens(&self) -> &OpenInodes<Self::Place>;

    /// Whether an inode is the file system's own, so that no name may lead to it and nobody open it.
    fn is_own(&self, inode: &Self::Inode) -> bool;

    /// Frees an orphan without names, in as many operations as that takes. Its lock is held.
    ///
    /// # Errors
    /// What reading and freeing bring. The inode is still an orphan then.
    fn free_orphan(&self, ino: Ino) -> Result<()>;

    /// Whether an orphan, whose lock is held, has names, which keep it. In some formats none has.
    ///
    /// # Errors
    /// What reading brings.
    fn has_names(&self, _: Ino) -> Result<bool> {
        Ok(false)
    }

    /// Ends the record of an orphan that has names. Its lock is held.
    ///
    /// # Errors
    /// What reading and changing it bring.
    fn end_named_orphan(&self, _: Ino) -> Result<()> {
        Ok(())
    }
}

/// Counts a reference to an inode in use.
///
/// # Errors
/// `NotFound` if it is not in use, or the file system's own; what reading brings; if there are more
/// references than can be counted.
pub fn open_inode<F: InactivateInodes>(fs: &F, ino: Ino) -> Result<()> {
    let _lock = fs.locks().shared(ino);
    if fs.is_own(&fs.load(ino)?) {
        return Err(Error::NotFound);
    }
    fs.opens().open(ino)
}

/// Gives a reference back, and frees the inode if it was the last one and there is no name. What fails in
/// freeing leaves it an orphan, to be freed when the file system is closed or opened next.
///
/// # Errors
/// If the inode is not open; what reading brings.
pub fn close_inode<F: InactivateInodes>(fs: &F, ino: Ino) -> Result<()> {
    if fs.opens().close(ino)?.is_some() {
        return Ok(());
    }
    let _lock = fs.locks().exclusive(&[ino]);
    if fs.opens().close_last(ino)? && !fs.has_names(ino)? {
        let _ = fs.free_orphan(ino);
    }
    Ok(())
}

/// Frees what an operation has left behind and nobody has open: who closed it before it was known as an
/// orphan has left it to this. The inode's lock must still be held.
///
/// The operation that removed the name has happened, so nothing that fails here makes it fail: the inode
/// stays an orphan then, and is freed when the file system is closed or opened next.
pub fn inactivate<F: InactivateInodes>(fs: &F, inactivation: Inactivation) {
    match inactivation {
        Inactivation::Orphan(ino) if !fs.opens().is_open(ino) => {
            let _ = fs.free_orphan(ino);
        }
        _ => {}
    }
}

/// Ends an orphan; whether it was freed, because it has no names.
///
/// # Errors
/// What reading, freeing and changing it bring.
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

/// Ends all orphans, open or not; returns how many were freed. For the end, when nobody can close them any
/// more.
///
/// # Errors
/// As [`end_orphan`].
pub fn inactivate_all<F: InactivateInodes>(fs: &F) -> Result<u64> {
    let mut freed = 0;
    for ino in fs.opens().close_all() {
        freed += u64::from(end_orphan(fs, ino)?);
    }
    Ok(freed)
}
