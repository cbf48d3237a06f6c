//! Use of the blocks of a device, reported by the file system, for programs that draw maps.
//!
//! A file system reads its metadata once and reports every run of blocks with its use to a [`Sink`]. It stores nothing
//! of that, so the sink determines the memory use.

use std::ops::ControlFlow;

use crate::{FileSystem, Ino, Result};

/// Use of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum BlockUse {
    /// Superblocks, tables of group descriptors and the blocks reserved for their growth, headers of allocation groups,
    /// the boot block.
    Headers,
    /// Records of the blocks and inodes in use: bitmaps, or the trees of allocation groups and the blocks reserved for
    /// them.
    Allocation,
    /// Inode tables and inode chunks, whether or not the inodes are in use.
    Inodes,
    /// The journal or log.
    Log,
    /// Directory entries and their indexes.
    Directories,
    /// Extended attributes outside of inodes, including their large values.
    Attributes,
    /// Block maps of inodes: nodes of extent trees, indirect blocks.
    Maps,
    /// Contents of files and targets of symbolic links.
    Data,
    /// Contents shared by several files.
    Shared,
    /// Unwritten blocks of files and blocks reserved for copy-on-write.
    Preallocated,
    /// Internal files of the file system: quotas and orphans.
    System,
    /// Blocks listed as bad.
    Bad,
    /// Free blocks.
    Free,
    /// Blocks in use whose owner could not be determined.
    Unknown,
}

impl BlockUse {
    /// Number of kinds.
    pub const COUNT: usize = 14;

    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Headers,
        Self::Allocation,
        Self::Inodes,
        Self::Log,
        Self::Directories,
        Self::Attributes,
        Self::Maps,
        Self::Data,
        Self::Shared,
        Self::Preallocated,
        Self::System,
        Self::Bad,
        Self::Free,
        Self::Unknown,
    ];
}

/// State of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// There is no log.
    None,
    /// The log is on another device.
    Elsewhere,
    /// All changes in the log have been written back.
    Clean,
    /// The log contained changes that were not written back. They were replayed in memory.
    Replayed,
    /// The log contains changes that were not written back. The image is read without them.
    Ignored,
    /// The end of the log cannot be determined. The image is read without it.
    Unreadable,
}

/// Size and structure of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageGeometry {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks; the first is 0.
    pub blocks: u64,
    /// Blocks of a group; the last group may have fewer.
    pub group_blocks: u64,
    /// Number of groups.
    pub groups: u64,
    /// State of the log.
    pub log: LogState,
    /// Parts of the image outside of its blocks that are not reported, as a sentence.
    pub left_out: Option<&'static str>,
}

/// Consecutive blocks with the same use, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First block.
    pub start: u64,
    /// Number of blocks.
    pub len: u64,
    /// Use of the blocks. A free extent is as long as the format lists it: it ends at the end of a group.
    pub kind: BlockUse,
}

/// Layout of an inode with data blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// Inode number.
    pub ino: Ino,
    /// True for a directory; otherwise it is a regular file.
    pub is_dir: bool,
    /// Number of runs that are contiguous on the device, in file order; 1 if the file is not fragmented.
    pub fragments: u64,
    /// Number of data blocks.
    pub blocks: u64,
}

/// Receiver of a layout.
pub trait Sink {
    /// Receives an extent. Each block is reported once, unless the image is damaged.
    fn extent(&mut self, extent: Extent);

    /// Receives a regular file or directory with data blocks, after its extents.
    fn file(&mut self, file: FileLayout);

    /// Receives a message about unreadable metadata, whose blocks are not reported.
    fn remark(&mut self, remark: String);

    /// Receives progress: `done` of `total` units of work. `Break` stops the survey.
    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()>;
}

/// A file system that can report the use of its blocks.
pub trait TellsLayout: FileSystem {
    /// Returns the size and structure of the image.
    ///
    /// # Errors
    /// If the device fails while the log is examined.
    fn shape(&self) -> Result<ImageGeometry>;

    /// Reports all blocks, in the state after the replay of the log. Reads all metadata once. Damage is reported as a
    /// remark. Blocks in use that are not reported belong to something unreadable.
    fn tell_layout(&self, sink: &mut dyn Sink);
}

/// Counts the fragments of a file from its blocks in file order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fragments {
    /// Number of contiguous runs.
    pub count: u64,
    /// Total number of blocks.
    pub blocks: u64,
    end: u64,
}

impl Fragments {
    /// Adds a run.
    pub fn add(&mut self, start: u64, len: u64) {
        self.count += u64::from(self.count == 0 || start != self.end);
        self.blocks = self.blocks.saturating_add(len);
        self.end = start.saturating_add(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_stand_at_their_numbers() {
        for (at, kind) in BlockUse::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?}");
        }
    }

    #[test]
    fn runs_that_adjoin_are_one_piece() {
        let mut fragments = Fragments::default();
        for (start, len) in [(10, 5), (15, 1), (17, 2), (10, 3)] {
            fragments.add(start, len);
        }
        assert_eq!((fragments.count, fragments.blocks), (3, 11));
    }
}
