//! State in memory of inodes that are open, or in use without a name: orphans, which each format records in a place of
//! its own type.
//!
//! The table is sharded, so that contention is rare. A shard is locked for one access only, and no other lock is taken
//! during that time.

use engine::locks::Mutex;
use engine::numbers::{FIBONACCI, NumberMap};
use vfs::{Error, Ino, Result};

/// Number of shards: a power of two, far more than threads.
const SHARDS: usize = 512;

/// Number of consecutive inodes in a shard: about those of a block of the inode table.
const NEIGHBOURS: u64 = 16;

#[derive(Clone, Copy)]
struct OpenInode<P> {
    opens: u32,
    place: Option<P>,
}

impl<P> Default for OpenInode<P> {
    fn default() -> Self {
        Self { opens: 0, place: None }
    }
}

type Shard<P> = NumberMap<u64, OpenInode<P>>;

/// Aligned to separate cache lines for threads on different shards.
#[repr(align(64))]
struct Aligned<P>(Mutex<Shard<P>>);

/// Open inodes, and orphans with the place of their record.
pub struct OpenInodes<P> {
    shards: Box<[Aligned<P>]>,
}

impl<P: Copy> Default for OpenInodes<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Copy> OpenInodes<P> {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Aligned(Mutex::default())).collect() }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard<P>> {
        // Consecutive inodes share a shard, so threads in different directories rarely contend.
        &self.shards[((ino.0 / NEIGHBOURS).wrapping_mul(FIBONACCI) >> 40) as usize % SHARDS].0
    }

    /// Returns whether an inode is open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino.0).is_some_and(|state| state.opens > 0)
    }

    /// Returns the place of an orphan's record; `None` if the inode is not an orphan.
    pub fn place(&self, ino: Ino) -> Option<P> {
        self.shard(ino).lock().get(&ino.0).and_then(|state| state.place)
    }

    /// Sets the place of an orphan's record; `None` if the inode is no longer an orphan.
    pub fn set_place(&self, ino: Ino, place: Option<P>) {
        self.change(ino, |state| state.place = place);
    }

    /// Adds a reference to an inode in use.
    ///
    /// # Errors
    /// If the number of references would overflow.
    pub(crate) fn open(&self, ino: Ino) -> Result<()> {
        self.change(ino, |state| {
            let too_many = Error::Invalid("too many references to one inode");
            state.opens = state.opens.checked_add(1).ok_or(too_many)?;
            Ok(())
        })
    }

    /// Drops a reference. Returns `None`, and does nothing, if it is the last one to an orphan: the caller must then
    /// lock the inode and call `OpenInodes::close_last`. If the operation that makes the inode an orphan has not
    /// committed yet, its thread checks for references after the commit.
    ///
    /// # Errors
    /// If the inode is not open.
    pub(crate) fn close(&self, ino: Ino) -> Result<Option<()>> {
        self.change(ino, |state| {
            if state.opens == 0 {
                return Err(Error::Invalid("closing an inode that is not open"));
            }
            if state.opens == 1 && state.place.is_some() {
                return Ok(None);
            }
            state.opens -= 1;
            Ok(Some(()))
        })
    }

    /// Drops a reference. Returns whether it was the last one to an orphan.
    ///
    /// # Errors
    /// If the inode is not open.
    pub(crate) fn close_last(&self, ino: Ino) -> Result<bool> {
        self.change(ino, |state| {
            if state.opens == 0 {
                return Err(Error::Invalid("closing an inode that is not open"));
            }
            state.opens -= 1;
            Ok(state.opens == 0 && state.place.is_some())
        })
    }

    /// Drops all references and returns all orphans, in ascending order.
    pub(crate) fn close_all(&self) -> Vec<Ino> {
        let mut orphans = Vec::new();
        for shard in &self.shards {
            shard.0.lock().retain(|&ino, state| {
                state.opens = 0;
                if state.place.is_some() {
                    orphans.push(Ino(ino));
                }
                state.place.is_some()
            });
        }
        orphans.sort_unstable();
        orphans
    }

    /// Removes the entry of an inode when it becomes empty.
    fn change<R>(&self, ino: Ino, change: impl FnOnce(&mut OpenInode<P>) -> R) -> R {
        let mut shard = self.shard(ino).lock();
        let state = shard.entry(ino.0).or_default();
        let outcome = change(state);
        if state.opens == 0 && state.place.is_none() {
            shard.remove(&ino.0);
        }
        outcome
    }
}
