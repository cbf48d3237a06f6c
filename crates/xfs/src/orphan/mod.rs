//! Inodes in use that no name leads to: they stay on the lists that start in their group's AGI, and
//! with them everything they have, until nobody has them open any more.
//!
//! A group has 64 lists, one for each remainder of inode numbers. An AGI's bucket names the first
//! inode of a list and each inode's `di_next_unlinked` the next. An inode is put on its list and taken
//! off it in the operation that takes its last name, gives it one or frees it.
//!
//! Invariants:
//! - An inode is on a list if the table of open inodes says so, and on its own bucket's. Only who has
//!   the inode's lock exclusively changes that.
//! - The lists in memory are what is on disk after all operations that held their lock. They are
//!   locked only by an operation that holds the group.
//! - `di_next_unlinked` of any inode of a group is changed only by an operation that holds the group, never
//!   by who writes the inode's other fields.

mod inactivate;
mod load;
mod pending;
mod record;
#[cfg(test)]
mod tests;

use operation::chain::Chain;
use operation::opens::OpenInodes;
use operation::orphans::Chains;
use transaction::locks::Mutex;

pub(crate) use operation::orphans::Inactivation;
pub(crate) use pending::Pending;

use crate::format::address::AgIno;
use crate::format::ag::UNLINKED_BUCKETS;

/// The list that an inode belongs on.
const fn bucket_of(ino: AgIno) -> usize {
    ino.0 as usize % UNLINKED_BUCKETS
}

/// Marks an inode that is on a list. No other crate sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed;

/// The lists of one group; none at all as long as all are empty.
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
    /// Empty lists for so many groups.
    pub(crate) fn new(groups: u32) -> Self {
        let groups = (0..groups).map(|_| Mutex::default()).collect();
        Self { table: OpenInodes::new(), groups }
    }
}
