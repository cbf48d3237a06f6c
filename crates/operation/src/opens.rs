//! What is known in memory of inodes that are open, or in use though no name leads to them: orphans,
//! which each format records in its own kind of place.
//!
//! The table is in shards, so that threads seldom meet. A shard is locked for a look-up and no
//! longer, with nothing else taken meanwhile.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use transaction::locks::Mutex;
use vfs::{Error, Ino, Result};

/// Shards there are: a power of two, far more than threads.
const SHARDS: usize = 512;

/// Inodes in a row that share a shard: about what a block of the inode table has.
const NEIGHBOURS: u64 = 16;

/// An odd number whose bits look random: 2^64 divided by the golden ratio.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy)]
struct State<P> {
    opens: u32,
    place: Option<P>,
}

impl<P> Default for State<P> {
    fn default() -> Self {
        Self { opens: 0, place: None }
    }
}

/// Hashes inode numbers. Only their number is bounded by memory, not their choice: whoever can choose
/// them all has made the image.
#[derive(Default)]
struct InoHasher(u64);

impl Hasher for InoHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(MIX);
    }

    fn finish(&self) -> u64 {
        // The upper bits are the good ones, and maps look at both ends.
        self.0 ^ self.0 >> 32
    }
}

type Shard<P> = HashMap<u64, State<P>, BuildHasherDefault<InoHasher>>;

/// Apart in memory, so that threads on different shards do not share cache lines.
#[repr(align(64))]
struct Aligned<P>(Mutex<Shard<P>>);

/// Open inodes, and orphans with the place where each is recorded.
pub struct OpenInodes<P> {
    shards: Box<[Aligned<P>]>,
}

impl<P: Copy> Default for OpenInodes<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Copy> OpenInodes<P> {
    /// A table of no inodes.
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Aligned(Mutex::default())).collect() }
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard<P>> {
        // Neighbours share a shard: threads in different directories then rarely meet.
        &self.shards[((ino.0 / NEIGHBOURS).wrapping_mul(MIX) >> 40) as usize % SHARDS].0
    }

    /// Whether somebody has an inode open.
    pub fn is_open(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino.0).is_some_and(|state| state.opens > 0)
    }

    /// Where an orphan is recorded; `None` if the inode is none.
    pub fn place(&self, ino: Ino) -> Option<P> {
        self.shard(ino).lock().get(&ino.0).and_then(|state| state.place)
    }

    /// Notes where an orphan is recorded, or that the inode is none any more.
    pub fn set_place(&self, ino: Ino, place: Option<P>) {
        self.change(ino, |state| state.place = place);
    }

    /// Counts a reference to an inode in use.
    ///
    /// # Errors
    /// If there are more references than can be counted.
    pub fn open(&self, ino: Ino) -> Result<()> {
        self.change(ino, |state| {
            let too_many = Error::Invalid("too many references to one inode");
            state.opens = state.opens.checked_add(1).ok_or(too_many)?;
            Ok(())
        })
    }

    /// Gives a reference back. `None` if it is the last one to an orphan: then nothing is done, and
    /// the caller must come back with the inode's lock and [`OpenInodes::close_last`]. Where the operation
    /// that makes it an orphan has not committed yet, that one's thread looks for references after it.
    ///
    /// # Errors
    /// If the inode is not open.
    pub fn close(&self, ino: Ino) -> Result<Option<()>> {
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

    /// Gives a reference back; whether it was the last one to an orphan.
    ///
    /// # Errors
    /// If the inode is not open.
    pub fn close_last(&self, ino: Ino) -> Result<bool> {
        self.change(ino, |state| {
            if state.opens == 0 {
                return Err(Error::Invalid("closing an inode that is not open"));
            }
            state.opens -= 1;
            Ok(state.opens == 0 && state.place.is_some())
        })
    }

    /// Forgets all references, and returns all orphans, in ascending order.
    pub fn close_all(&self) -> Vec<Ino> {
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

    /// An inode about which nothing is known takes no memory.
    fn change<R>(&self, ino: Ino, change: impl FnOnce(&mut State<P>) -> R) -> R {
        let mut shard = self.shard(ino).lock();
        let state = shard.entry(ino.0).or_default();
        let outcome = change(state);
        if state.opens == 0 && state.place.is_none() {
            shard.remove(&ino.0);
        }
        outcome
    }
}
