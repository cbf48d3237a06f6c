//! Deleted inodes and names that can still be read, reported by the format that finds them.
//!
//! A format reads its inode tables or chunks, all blocks of its journal or log, and the unused bytes of directories. It
//! reports each candidate to a [`DeletedSink`] and keeps no list of results.

use std::ops::ControlFlow;

use crate::{FileType, Ino, Timestamp};

/// Maximum number of deleted inodes whose images in the journal or log are remembered.
pub const IMAGES_MAX: usize = 1 << 19;

/// Maximum number of extents of one deleted file that are reported.
pub const RUNS_MAX: usize = 1 << 17;

/// Location at which a candidate was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeletedSource {
    /// The inode table or inode chunk.
    Inodes,
    /// The journal or log.
    Log {
        /// Block in the journal, or 512-byte block in the log of XFS.
        block: u64,
        /// Transaction of the journal, or cycle of the log of XFS.
        sequence: u64,
    },
    /// Unused bytes of a directory.
    Slack {
        /// Block of the device; `None` for a directory within its inode.
        block: Option<u64>,
    },
    /// A free block of the device.
    Free {
        /// Block of the device.
        block: u64,
    },
}

/// Consecutive blocks of a deleted file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedRun {
    /// First block in the file.
    pub first: u64,
    /// First block on the device.
    pub start: u64,
    /// Number of blocks, at least 1.
    pub len: u64,
    /// True if the blocks were allocated but never written.
    pub unwritten: bool,
}

/// Contents of a deleted inode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DeletedData {
    /// No block map or contents were found.
    #[default]
    Lost,
    /// The contents are in the inode.
    Inline(Vec<u8>),
    /// The contents are in blocks of the device.
    Mapped {
        /// Extents in file order.
        runs: Vec<DeletedRun>,
        /// Number of map blocks that could not be read or have other contents now.
        lost: u64,
    },
}

impl DeletedData {
    /// Returns the extents.
    pub fn runs(&self) -> &[DeletedRun] {
        match self {
            Self::Mapped { runs, .. } => runs,
            Self::Lost | Self::Inline(_) => &[],
        }
    }
}

/// State of an inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeState {
    /// The inode is free.
    Free,
    /// The inode has no name, but it is not freed yet. Its blocks still belong to it.
    Orphan,
    /// Another file uses the number.
    Reused,
}

/// A deleted inode.
#[derive(Clone, Debug)]
pub struct DeletedInode {
    /// Inode number.
    pub ino: Ino,
    /// Generation that the inode had as a file.
    pub generation: u32,
    /// File type, if it is known.
    pub file_type: Option<FileType>,
    /// Permission bits, if they are known.
    pub permissions: Option<u16>,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; `None` if the deletion cleared it.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation time, if the format stores it.
    pub crtime: Option<Timestamp>,
    /// Deletion time, if the format stores it.
    pub dtime: Option<Timestamp>,
    /// State of the inode number.
    pub state: InodeState,
    /// Contents.
    pub data: DeletedData,
    /// Location of the image of the inode.
    pub source: DeletedSource,
}

/// A name that was removed from a directory, or that is in an old image of a directory. It may still exist.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeletedName {
    /// The directory, if it is known.
    pub dir: Option<Ino>,
    /// Name, without `/` and NUL.
    pub name: Vec<u8>,
    /// Inode number, if it was not overwritten.
    pub ino: Option<Ino>,
    /// File type in the entry, if it is known.
    pub file_type: Option<FileType>,
    /// Location of the entry.
    pub source: DeletedSource,
}

/// Parts of the image to search in addition to metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeletedScope {
    /// Search all free blocks for directory blocks and inode chunks. Reads the whole free space.
    pub free_blocks: bool,
}

/// Receiver of deleted inodes and names.
pub trait DeletedSink {
    /// Receives an inode.
    fn inode(&mut self, inode: DeletedInode);

    /// Receives a name.
    fn name(&mut self, name: DeletedName);

    /// Receives a message about something that could not be searched.
    fn remark(&mut self, remark: String);

    /// Returns whether a block of the device is free.
    fn is_free(&self, block: u64) -> bool;

    /// Receives progress: `done` of `total` units of work. `Break` stops the search.
    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()>;
}

/// Returns whether bytes can be a name in a directory.
#[must_use]
pub fn is_name(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes != b"."
        && bytes != b".."
        && !bytes.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// Appends a run, joined with the last one if it continues that.
pub fn push_run(runs: &mut Vec<DeletedRun>, run: DeletedRun) {
    match runs.last_mut() {
        Some(last)
            if last.first + last.len == run.first
                && last.start + last.len == run.start
                && last.unwritten == run.unwritten =>
        {
            last.len += run.len;
        }
        _ => runs.push(run),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_to_directories_are_no_names() {
        for bytes in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(!is_name(bytes), "{bytes:?}");
        }
        assert!(is_name(b"...") && is_name(b"\xff\n"));
    }

    #[test]
    fn runs_that_continue_are_joined() {
        let mut runs = Vec::new();
        let run = |first, start, len| DeletedRun { first, start, len, unwritten: false };
        for part in [run(0, 10, 2), run(2, 12, 1), run(4, 14, 1), run(5, 20, 1)] {
            push_run(&mut runs, part);
        }
        assert_eq!(runs, [run(0, 10, 3), run(4, 14, 1), run(5, 20, 1)]);
    }
}
