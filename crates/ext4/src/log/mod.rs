//! The journal (jbd2): writing checkpoints to it, and recovering what a crash left in it.
//!
//! Invariants:
//! - Nothing in the log is overwritten before the journal superblock that no longer reaches it is
//!   durable.
//! - A commit block is written only after all other blocks of its transaction are durable.
//! - Recovery writes nothing before it has read all that it will replay and found it sound; what it
//!   replays lies in the file system and outside the journal.
//! - Work and memory of recovery are bounded by the size of the journal, whatever it holds.

mod fast_commit;
mod journal;
mod map;
mod reader;
mod recover;
mod replay;
mod scan;
mod writer;

pub use journal::Journal;
pub use map::JournalMap;
pub use recover::{Report, Resume, recover};
pub(crate) use recover::{highest_sequence, salvage, users_count};

/// Inode of the journal where the superblock does not say otherwise.
pub(crate) const JOURNAL_INO: u32 = 8;
