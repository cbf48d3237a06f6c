//! The data path: contents of regular files, read and changed alike for every format.
//!
//! Data is not journaled. What a file gets new goes to the device before the operation that shows
//! it commits, so that nothing old is ever seen; bytes written over others, and zeros in the blocks
//! at the edges of what is cut, go there at the end of the operation, when nothing but the device
//! can fail any more. So an operation that fails for want of space leaves all contents as they were.
//!
//! A request is one operation unless it changes more than one should hold
//! ([`ChangeFiles::changes_per_op`], [`WRITTEN_PER_OP_MAX`]); then it is several, from front to back,
//! each of which leaves a sound file. A file that grows shows zeros where nothing was written,
//! whatever the device holds between its old and its new end.
//!
//! A format says how files are mapped ([`ReadFiles`], [`MapFiles`]) and what else a change of
//! contents means for an inode ([`ChangeFiles`]). Everything is generic over the format, so each
//! gets code of its own, without dynamic calls.
//!
//! What stays with the formats, because it is alike only from afar:
//! - Maps themselves. An ext4 extent tree is changed node by node and may need another round after
//!   a split; an XFS fork replaces neighbours in a list or a tree and keeps the reverse map and the
//!   counts of sharing. They have in common what they answer: [`Run`] and [`Piece`].
//! - How a truncation of several operations ends. An ext4 file is an orphan meanwhile and goes on
//!   after a crash, and a failure is kept for later; what XFS leaves is space past the end, which
//!   the format allows, so a failure is the caller's to see.
//! - Inline data and targets of symbolic links: ext4 takes inline data out of the inode before it
//!   changes, XFS never has any in regular files, and remote targets have headers in XFS alone.

mod ahead;
mod allocate;
mod device;
mod format;
mod map;
mod read;
mod resize;
mod write;
mod zero;

pub use ahead::read_ahead;
pub use allocate::allocate;
pub use device::{DataRun, DataRuns, ZeroedRuns, write_data, write_run, write_zeros};
pub use format::{ChangeFiles, FileHandle, MapFiles, ReadFiles};
pub use map::{LogicalBlock, Piece, Place, Run, Want, Was};
pub use read::{bytes_at, extent_map, read, read_in_place, require_regular};
pub use resize::{cut_past_size, cut_to, resize};
pub use write::write;
pub use zero::{zero_past_size, zero_written};

/// Bytes of data that one operation writes at most, so that none takes long.
pub const WRITTEN_PER_OP_MAX: u64 = 16 << 20;
