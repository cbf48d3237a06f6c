//! What lies where on the device: what a file system tells of its blocks, for those who draw maps of it.
//!
//! A file system goes once over its metadata and tells a [`Sink`] of every run of blocks, what it is used for. It
//! keeps nothing of what it tells, so that the sink says how much memory that takes.

use std::ops::ControlFlow;

use crate::{FileSystem, Ino, Result};

/// What blocks are used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Superblocks, tables of group descriptors and what is kept for their growth, headers of allocation groups,
    /// the boot block.
    Headers,
    /// What says which blocks and inodes are in use: bitmaps, or the trees of allocation groups and the blocks kept
    /// for these.
    Allocation,
    /// Inode tables and chunks of inodes, whether or not the inodes are in use.
    Inodes,
    /// The journal or log.
    Log,
    /// Entries of directories, and their indexes.
    Directories,
    /// Extended attributes outside of inodes, their large values included.
    Attributes,
    /// What says where the blocks of an inode are: nodes of extent trees, blocks of pointers.
    Maps,
    /// Contents of files, and targets of symbolic links.
    Data,
    /// Contents that several files share.
    Shared,
    /// Blocks of files that were never written, and those that are kept for copying on write.
    Preallocated,
    /// Files of the file system itself: of quotas and orphans.
    System,
    /// Blocks that are listed as bad.
    Bad,
    /// Free blocks.
    Free,
    /// Blocks in use, of which nothing that could be read says what for.
    Unknown,
}

impl Kind {
    /// How many kinds there are.
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

/// What the log is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogState {
    /// There is none.
    None,
    /// It lies on another device.
    Elsewhere,
    /// It holds nothing that is not in its place.
    Clean,
    /// It holds changes that are not in their places, which were replayed in memory.
    Replayed,
    /// It holds changes that are not in their places, and the image is read without them.
    Ignored,
    /// Its end cannot be made out, and the image is read without it.
    Unreadable,
}

/// What an image says of its size and its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Block size in bytes.
    pub block_size: u32,
    /// All blocks, the first of which is 0.
    pub blocks: u64,
    /// Blocks of a group; the last one may have fewer.
    pub group_blocks: u64,
    /// Groups.
    pub groups: u64,
    /// What the log is like.
    pub log: LogState,
    /// What the image has beside its blocks that is not told of, as a sentence.
    pub left_out: Option<&'static str>,
}

/// Blocks in a row that are used for the same, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first block.
    pub start: u64,
    /// Number of blocks.
    pub len: u64,
    /// What they are used for. Free ones are a run as long as the format lists it: it ends at the end of a group.
    pub kind: Kind,
}

/// How an inode with blocks of contents is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// Its number.
    pub ino: Ino,
    /// Whether it is a directory; otherwise it is a regular file.
    pub is_dir: bool,
    /// Runs of blocks that lie together on the device, in the order of the file: 1 if it is in one piece.
    pub fragments: u64,
    /// Blocks of contents.
    pub blocks: u64,
}

/// Who is told what lies where.
pub trait Sink {
    /// Some blocks. Each is told of once, unless the image is damaged.
    fn extent(&mut self, extent: Extent);

    /// A regular file or directory with blocks of its own, after its blocks were told of.
    fn file(&mut self, file: FileLayout);

    /// Something that could not be read. The blocks that belong to it are not told of.
    fn remark(&mut self, remark: String);

    /// That `done` of `total` units of work are done. Whether to go on.
    fn progress(&mut self, done: u64, total: u64) -> ControlFlow<()>;
}

/// A file system that can tell what lies where.
pub trait TellsLayout: FileSystem {
    /// Size and parts of the image.
    ///
    /// # Errors
    /// If the log cannot be looked at because the device fails.
    fn shape(&self) -> Result<Shape>;

    /// Tells of all blocks, as the image is once its log was replayed. It costs what reading the metadata costs.
    /// Damage is a remark. What is in use and not told of belongs to something that could not be read.
    fn tell_layout(&self, sink: &mut dyn Sink);
}

/// Counts the pieces of a file as its blocks are met in the order of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fragments {
    /// Runs that lie together.
    pub count: u64,
    /// Blocks of all.
    pub blocks: u64,
    end: u64,
}

impl Fragments {
    /// Counts a run.
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
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
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
