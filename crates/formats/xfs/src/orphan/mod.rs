//! Unlinked inodes: in use, but without names. They stay on the lists that start in their group's AGI, with all their
//! contents, until they are no longer open.
//!
//! A group has 64 lists, one for each remainder of inode numbers. A bucket of the AGI contains the first inode of a
//! list, and `di_next_unlinked` of each inode the next. An inode is added to its list or removed from it in the
//! operation that removes its last name, gives it one or frees it.
//!
//! Invariants:
//! - An inode is on a list, that of its own bucket, if and only if the table of open inodes says so. Changing this
//!   requires the inode's exclusive lock.
//! - The lists in memory equal those on disk after all operations that held their lock. Only an operation that holds
//!   the group may lock them.
//! - `di_next_unlinked` of any inode of a group is changed only by an operation that holds the group, never by an
//!   operation that writes the inode's other fields.

mod inactivate;
mod load;
mod pending;
mod record;
#[cfg(test)]
mod tests;

use engine::locks::Mutex;
use operations::chain::Chain;
use operations::opens::OpenInodes;
use operations::orphans::Chains;

pub(crate) use operations::orphans::Inactivation;
pub(crate) use pending::Pending;

use crate::format::address::AgIno;
use crate::format::ag::UNLINKED_BUCKETS;

/// Returns the list that an inode belongs to.
const fn bucket_of(ino: AgIno) -> usize {
    ino.0 as usize % UNLINKED_BUCKETS
}

/// Marks an inode that is on a list. Not visible to other crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed;

/// The lists of one group; not allocated while all are empty.
#[derive(Default)]
struct Lists(Vec<Chain>);

impl Chains for Lists {
    /// The bucket.
    type Which = usize;

    fn chain(&mut self, bucket: usize) -> &mut Chain {
        if self.0.is_empty() {
            self.0.resize_with(UNLINKED_BUCKETS, Chain::default);
        }
        &mut self.0[bucket]
    }
}

/// The unlinked and open inodes of a file system.
pub(crate) struct Unlinked {
    table: OpenInodes<Listed>,
    groups: Box<[Mutex<Lists>]>,
}

impl Unlinked {
    /// Returns empty lists for `groups` groups.
    pub(crate) fn new(groups: u32) -> Self {
        let groups = (0..groups).map(|_| Mutex::default()).collect();
        Self { table: OpenInodes::new(), groups }
    }
}
