//! Maps of forks: which blocks a file's, a directory's or the attributes' logical blocks are.

use std::ops::Range;

use vfs::{Error, Result};

use crate::format::address::{FileBlock, FsBlock};
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::op::Op;
use crate::source::Source;

/// Blocks of a fork that lie in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First logical block.
    pub(crate) offset: FileBlock,
    /// First block.
    pub(crate) start: FsBlock,
    /// Blocks: 1 to 2^21 - 1.
    pub(crate) len: u64,
    /// Whether they read as zeros.
    pub(crate) unwritten: bool,
}

/// Where a run of logical blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Written(FsBlock),
    Unwritten(FsBlock),
    Hole,
}

/// A run of logical blocks in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) offset: FileBlock,
    /// Blocks, at least 1; a hole at the end reaches to [`FileBlock::END`].
    pub(crate) len: u64,
    pub(crate) place: Place,
}

/// The run from block `at` of a fork on. Its addresses are checked: they lie in one group.
pub(crate) fn run_at(
    _source: &mut impl Source,
    _handle: &Handle,
    _fork: Fork,
    _at: FileBlock,
) -> Result<Run> {
    Err(Error::unsupported("maps", ""))
}

/// Where the last extent of a fork ends; 0 for an empty one.
pub(crate) fn end_of(
    _source: &mut impl Source,
    _handle: &Handle,
    _fork: Fork,
) -> Result<FileBlock> {
    Err(Error::unsupported("maps", ""))
}

impl Op<'_> {
    /// Allocates `len` blocks for a hole of a fork of metadata (a directory's or the attributes'), in
    /// one piece, and maps them there as written.
    pub(crate) fn map_new(
        &mut self,
        _handle: &mut Handle,
        _fork: Fork,
        _at: FileBlock,
        _len: u32,
    ) -> Result<FsBlock> {
        Err(Error::unsupported("maps", ""))
    }

    /// Unmaps blocks of a fork and gives them back when the operation commits. Holes in the range are
    /// passed over. Blocks of metadata are forgotten.
    pub(crate) fn unmap(
        &mut self,
        _handle: &mut Handle,
        _fork: Fork,
        _range: Range<FileBlock>,
    ) -> Result<()> {
        Err(Error::unsupported("maps", ""))
    }
}
