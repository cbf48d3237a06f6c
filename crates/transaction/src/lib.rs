//! Buffer cache, transactions and checkpoints. Knows no on-disk format.
//!
//! An operation opens a [`Txn`], takes the buffers it touches (locked to the end of the
//! transaction) and says which bytes it is about to change; the transaction keeps the old ones.
//! Committing joins the change to the running *checkpoint*; dropping the transaction puts the old
//! bytes back. A checkpoint is a consistent set of changes: it is written through a [`Log`] and
//! then home, or, on an image in progress without a log, straight home.
//!
//! Invariants:
//! - A checkpoint holds whole transactions only: closing it waits for the open ones.
//! - A buffer is written back only after the checkpoint that changed it is durable in the log.
//! - What is written for a checkpoint is the block as that checkpoint left it, even if a later
//!   transaction changed it meanwhile (the earlier image is frozen at the first such change).
//! - Every block is verified when it is read, by the [`Format`] its [`Tag`] belongs to.
//! - Nothing of a checkpoint is written before all of its blocks are sealed: verified again, then their
//!   checksums computed. A block that cannot be right ends all writing.
//! - The log can always be emptied before a checkpoint is written to it, but for the last one before, which
//!   has room beside it; where the log is small, that one too.
//! - Once something could not be written, nothing is changed any more.
//!
//! Lock order: checkpoint lock (shared by transactions, exclusive to close a checkpoint) → buffers in the
//! order that the file system states → shard of the cache. A shard is never held while a buffer is
//! waited for.
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
pub mod locks;
mod permits;
mod seal;
mod txn;

pub use as_they_are::AsTheyAre;
pub use buffer::{BufferRef, Changed, Note, Tag};
pub use checkpoint::{Checkpoint, Fit, Image, Log, Size};
pub use engine::{Engine, Format, Options};
pub use fault::{Corruption, Error, Result};
pub use txn::{BufferId, Txn};
