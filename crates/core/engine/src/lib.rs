//! Buffer cache, transactions and checkpoints. Independent of on-disk formats.
//!
//! An operation opens a [`Txn`], acquires buffers (locked until the transaction ends) and declares the bytes that it is
//! about to change; the transaction saves the old ones. A commit joins the changes to the running *checkpoint*;
//! dropping the transaction restores the old bytes. A checkpoint is a consistent set of changes. It is written to a
//! [`Log`] and then in place. On an image in progress without a log it is only written in place.
//!
//! Invariants:
//! - A checkpoint contains whole transactions only: closing it waits for the open ones.
//! - A buffer is written back only after the checkpoint that changed it is durable in the log.
//! - A checkpoint writes the blocks as of its closing, even if a later transaction changes them before they are written
//!   (the first such change freezes the earlier image).
//! - Every block is verified when it is read, by the [`BlockFormat`] of its [`Tag`].
//! - All blocks of a checkpoint are sealed before the first is written: verified again, then their checksums computed.
//!   An invalid block ends all writes.
//! - Before a checkpoint is written, the log can be emptied of all others but the last one, which fits together with
//!   the new one. With a small log, of the last one as well.
//! - After a write error nothing is changed any more.
//!
//! Lock order: checkpoint lock (shared by transactions, exclusive to close a checkpoint) → buffers in the order that
//! the file system defines → shard of the cache. No thread waits for a buffer while it holds a shard.
#![forbid(unsafe_code)]

mod ahead;
mod as_they_are;
mod buffer;
mod cache;
mod checkpoint;
mod checkpoint_lock;
mod engine;
mod gather;
mod guard;
#[cfg(feature = "lock-counts")]
pub mod lock_counts;
pub mod locks;
pub mod numbers;
mod permits;
mod seal;
mod spread;
mod txn;

pub use as_they_are::AsTheyAre;
pub use buffer::{BufferRef, Changed, Note, Tag, slot_mark};
pub use checkpoint::{BlockImage, Checkpoint, Fit, Log, Size};
pub use engine::{BlockFormat, Engine, Options};
pub use spread::spread;
pub use txn::{BufferId, Txn};
pub use vfs::fault::{Corruption, Error, Result};
