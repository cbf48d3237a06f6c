//! The data path: contents of regular files, read and changed in the same way for all formats.
//!
//! Data is not journaled. New blocks of a file are written to the device before the operation that maps them commits,
//! so old data never becomes readable. Overwritten bytes, and zeros in the edge blocks of a truncated or punched range,
//! are written at the end of the operation, when only the device can still fail. So an operation that fails due to lack
//! of space leaves all contents unchanged.
//!
//! A request is one operation, unless it exceeds the limits of one ([`ChangeFiles::changes_per_op`],
//! `WRITTEN_PER_OP_MAX`). A larger request is split from front to back, and the file is consistent after each part. A
//! file that grows reads as zeros between its old and its new end, whatever the device contains there.
//!
//! A format defines the maps of files ([`ReadFiles`], [`MapFiles`]) and the effect of a change of contents on the inode
//! ([`ChangeFiles`]). All code is generic over the format, without dynamic calls.
//!
//! Three parts stay in the formats, because their similarity is superficial:
//! - Maps. An ext4 extent tree is changed node by node and may need another round after a split; an XFS fork replaces
//!   neighbours in a list or a tree and maintains the reverse map and reference counts. Both return [`MappedRun`] and
//!   [`Piece`].
//! - The end of a truncation of several operations. An ext4 file is an orphan until then, the truncation continues
//!   after a crash, and errors are deferred. XFS leaves space past the end, which the format permits, so errors are
//!   returned to the caller.
//! - Inline data and targets of symbolic links. ext4 moves inline data out of the inode before it changes; XFS has none
//!   in regular files, and only XFS has remote targets with headers.

mod ahead;
mod allocate;
mod device;
mod format;
mod map;
mod nearby;
mod read;
mod resize;
mod write;
mod zero;

pub(crate) use ahead::read_ahead;
pub use allocate::allocate;
pub use device::{DataRun, DataRuns, ZeroedRuns, write_data, write_run, write_zeros};
pub use format::{ChangeFiles, FileHandle, MapFiles, ReadFiles};
pub use map::{LogicalBlock, MappedRun, Mapping, Piece, Want, Was};
pub use nearby::{NearbyPlace, nearby_place};
pub(crate) use read::bytes_at;
pub use read::{extent_map, note_reading, read, read_in_place, require_regular};
pub use resize::{cut_past_size, cut_to, resize};
pub use write::write;
pub use zero::{zero_past_size, zero_written};

/// Maximum number of bytes that one operation writes, so that operations stay short.
pub(crate) const WRITTEN_PER_OP_MAX: u64 = 16 << 20;
