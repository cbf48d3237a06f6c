//! Interface of a format whose directories may have deferred files.

use vfs::{Attributes, Ino, Result};

use super::{Batch, BatchOrder, DeferredCreates, DeferredFile, InodeRun};
use crate::names::Directories;
use crate::orphans::InactivateInodes;

/// The hash function of a directory's names.
pub trait HashNames: Copy {
    /// Returns the hash of a name. Hashes have the order of the directory's index, and a well-mixed lower half.
    fn key(&self, name: &[u8]) -> u64;
}

/// A format with deferred creates.
///
/// Space is counted in the allocation units of the groups; groups are identified by their numbers.
pub trait DeferCreates: Directories + InactivateInodes {
    /// Order in which files are applied.
    const ORDER: BatchOrder;

    /// The hash function of a directory's names.
    type Hasher: HashNames;

    /// Returns the deferred creates.
    fn deferred(&self) -> &DeferredCreates<Self::Hasher>;

    /// Returns the run ID of an inode. All inodes of a run have the same ID; several runs may share it.
    fn run_id(ino: Ino) -> u64;

    /// Returns the generation that a new inode with this number will get, as far as it is known before its creation.
    fn generation_to_be(&self, ino: Ino) -> u32;

    /// Returns the number of blocks of a directory.
    fn blocks_of(&self, dir: &Self::Inode) -> u64;

    /// Returns whether files of a directory need no special treatment, and another name will certainly fit when the
    /// directory has `blocks + more` blocks.
    fn suits(&self, dir: &Self::Inode, blocks: u64, more: u64) -> bool;

    /// Calls `each` with the hashes of all names of a directory.
    ///
    /// # Errors
    /// Read errors.
    fn for_each_key(
        &self,
        dir: &Self::Inode,
        hasher: Self::Hasher,
        each: &mut dyn FnMut(u64),
    ) -> Result<()>;

    /// Returns the maximum number of bytes that a name of this length takes in the directory and in its inode.
    fn bytes_of_name(&self, len: usize) -> usize;

    /// Returns the maximum space that `names` names with `bytes` bytes may need in a directory of `blocks` blocks.
    fn space_for(&self, blocks: u64, names: usize, bytes: usize) -> u64;

    /// Reserves inodes near a directory until they are released. Returns `None` if none are free.
    ///
    /// # Errors
    /// Read and write errors.
    fn reserve_inodes(&self, dir: &Self::Inode) -> Result<Option<InodeRun>>;

    /// Releases a reserved inode.
    fn let_go_of_inode(&self, ino: Ino);

    /// Promises space near a directory to its deferred files: up to `wanted`, as far as it is readily available. Calls
    /// `each` with the number of every group and the space promised there.
    ///
    /// # Errors
    /// Read errors.
    fn promise(&self, dir: &Self::Inode, wanted: u64, each: &mut dyn FnMut(u32, u32))
    -> Result<()>;

    /// Releases promised space of a group.
    fn release(&self, group: u32, count: u32);

    /// Creates the files of a batch in one operation. Their directory is locked exclusively.
    ///
    /// # Errors
    /// Returns the errors of operations.
    fn apply_batch(&self, dir: Ino, batch: &Batch) -> Result<()>;

    /// Returns the future attributes of a deferred file.
    ///
    /// # Errors
    /// Read errors.
    fn attributes_of(&self, file: &DeferredFile) -> Result<Attributes>;
}
