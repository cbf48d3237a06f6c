//! The on-disk format, without I/O: structures and their checks.
//!
//! Sources: *XFS Filesystem Structure* (djwong/xfs-documentation) and, for newer features (bigtime, nrext64, parent
//! pointers), the facts in `docs/xfs.md`. Everything is big-endian except checksums and the log's items.

pub mod address;
pub mod ag;
pub mod attr;
pub mod btree;
pub mod bytes;
pub mod checksum;
pub mod dir;
pub mod edit;
pub mod extent;
pub mod features;
pub mod geometry;
pub mod hash;
pub mod inode;
pub mod log;
pub mod metafile;
pub mod quota;
pub mod realtime;
pub mod superblock;
pub(crate) mod superblock_structure;
pub mod symlink;
