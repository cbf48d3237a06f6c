//! The journal (jbd2): writing checkpoints, and recovery after a crash.
//!
//! Invariants:
//! - No log block is overwritten before a journal superblock is durable whose tail is past it.
//! - A commit block is written only after all other blocks of its transaction are durable.
//! - Recovery reads and verifies everything that it will replay before it writes. All target blocks are inside the file
//!   system and outside the journal.
//! - Work and memory of recovery are bounded by the size of the journal, whatever it contains.

mod device;
mod journal;
mod map;
mod reader;
mod recover;
mod replay;
mod scan;
mod users;
mod writer;

pub(crate) use device::refuse_unused;
pub use device::{make_device, read_device};
pub use journal::Journal;
pub use map::JournalMap;
pub use recover::{RecoveryReport, Resume, recover};
pub(crate) use recover::{check_external, highest_sequence, salvage, users_count};
pub use users::free_device;
pub(crate) use users::set_user;

/// Inode of the journal unless the superblock names another one.
pub(crate) const JOURNAL_INO: u32 = 8;
