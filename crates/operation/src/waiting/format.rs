//! What a format must know for files to wait in its directories.

use vfs::{Attributes, Ino, Result};

use super::{Batch, BatchOrder, InodeRun, Record, Waiting};
use crate::names::Directories;
use crate::orphans::InactivateInodes;

/// Hashes of names of a directory.
pub trait HashNames: Copy {
    /// The hash of a name: ascending in the order of the directory's index, and with a lower half that is mixed
    /// well.
    fn key(&self, name: &[u8]) -> u64;
}

/// A format in whose directories files may wait.
///
/// Space is counted in the units that its groups give out, and groups by their numbers.
pub trait LetFilesWait: Directories + InactivateInodes {
    /// In which order files are applied.
    const ORDER: BatchOrder;

    /// How names of a directory are hashed.
    type Hasher: HashNames;

    /// The files that wait.
    fn waiting(&self) -> &Waiting<Self::Hasher>;

    /// The number of the run that an inode would be in. Inodes of a run have one number; others may have it, too.
    fn run_id(ino: Ino) -> u64;

    /// The generation that a new inode of that number gets, as far as that can be said before it is made.
    fn generation_to_be(&self, ino: Ino) -> u32;

    /// Blocks of a directory.
    fn blocks_of(&self, dir: &Self::Inode) -> u64;

    /// Whether files of a directory are as plain as can be, and another name will surely find a place in it when it
    /// has so many blocks and so many more.
    fn suits(&self, dir: &Self::Inode, blocks: u64, more: u64) -> bool;

    /// Calls `each` with the hashes of all names of a directory.
    ///
    /// # Errors
    /// What reading brings.
    fn for_each_key(
        &self,
        dir: &Self::Inode,
        hasher: Self::Hasher,
        each: &mut dyn FnMut(u64),
    ) -> Result<()>;

    /// Bytes, at most, that a directory, and the inode it leads to, take for a name of that length.
    fn bytes_of_name(&self, len: usize) -> usize;

    /// Space, at most, that so many names with so many bytes may need in a directory of so many blocks.
    fn space_for(&self, blocks: u64, names: usize, bytes: usize) -> u64;

    /// Keeps inodes near a directory, which nobody else gets before they are let go of. `None` if there are none.
    ///
    /// # Errors
    /// What reading and writing bring.
    fn reserve_inodes(&self, dir: &Self::Inode) -> Result<Option<InodeRun>>;

    /// Lets others have an inode that was kept, or that is used by now.
    fn let_go_of_inode(&self, ino: Ino);

    /// Promises space near a directory to files that wait in it: as much as wanted, or as there is to be had easily.
    /// Calls `each` with every group, and how much of it.
    ///
    /// # Errors
    /// What reading brings.
    fn promise(&self, dir: &Self::Inode, wanted: u64, each: &mut dyn FnMut(u32, u32))
    -> Result<()>;

    /// Takes back that space of a group is promised.
    fn release(&self, group: u32, count: u32);

    /// Makes files in one operation. Their directory is locked exclusively.
    ///
    /// # Errors
    /// What operations bring.
    fn apply_batch(&self, dir: Ino, batch: &Batch) -> Result<()>;

    /// The attributes that a file which waits will have.
    ///
    /// # Errors
    /// What reading brings.
    fn attributes_of(&self, file: &Record) -> Result<Attributes>;
}
