//! Maps of forks: which blocks a file's, a directory's or the attributes' logical blocks are.
//!
//! A fork lists its extents in the inode as long as they fit there, and else in a tree.

mod change;
mod convert;
mod list;
mod own;
mod provide;
mod remap;
mod remove;
mod tree;

use vfs::{Error, FileType, Result};

use crate::format::address::{FileBlock, FsBlock};
use crate::format::inode::{Fork, Format, flags};
use crate::inode::Handle;
use crate::source::Source;

pub(crate) use crate::format::extent::Extent;
pub(crate) use own::may_share;
pub(crate) use provide::{Piece, Want, Was};

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
    source: &mut impl Source,
    handle: &Handle,
    fork: Fork,
    at: FileBlock,
) -> Result<Run> {
    let (extent, next) = lookup(source, handle, fork, at)?;
    if let Some(extent) = extent
        && at < extent.end()
    {
        check(source, handle, fork, &extent)?;
        return Ok(run_in(&extent, at));
    }
    // Past the last block that can be, there is nothing, whatever the size says.
    let len = next.0.checked_sub(at.0).filter(|len| *len > 0).unwrap_or(u64::MAX - at.0);
    Ok(Run { offset: at, len: len.max(1), place: Place::Hole })
}

/// The last extent that starts at `at` or before, which is not checked, and where the next one starts
/// (or a place before it up to which there is none).
fn lookup(
    source: &mut impl Source,
    handle: &Handle,
    fork: Fork,
    at: FileBlock,
) -> Result<(Option<Extent>, FileBlock)> {
    match handle.inode.fork_format(fork) {
        Format::Extents => in_list(handle, fork, at),
        Format::Btree => {
            let found = tree::find(source, handle, fork, at)?;
            Ok((found.extent, found.next))
        }
        Format::Local | Format::Device => {
            Err(handle.corrupt("inode", "its contents are not in blocks"))
        }
    }
}

/// What an extent has from `at` on.
fn run_in(extent: &Extent, at: FileBlock) -> Run {
    let skip = at.0 - extent.offset.0;
    let start = extent.start.plus(skip);
    let place = if extent.unwritten { Place::Unwritten(start) } else { Place::Written(start) };
    Run { offset: at, len: extent.len - skip, place }
}

/// The last extent of a list that starts at `at` or before, and where the one after it starts.
fn in_list(handle: &Handle, fork: Fork, at: FileBlock) -> Result<(Option<Extent>, FileBlock)> {
    let records = list::records(handle, fork)?;
    let index = list::count_to(records, at);
    let extent = index.checked_sub(1).and_then(|index| list::nth(records, index));
    let next = list::nth(records, index).map_or(FileBlock::END, |next| next.offset);
    if extent.is_some_and(|extent| extent.end() > next) {
        return Err(handle.corrupt("extent list", "extents that overlap or are out of order"));
    }
    Ok((extent, next))
}

/// Checks an extent that was found, before its address is used.
fn check(source: &impl Source, handle: &Handle, fork: Fork, extent: &Extent) -> Result<()> {
    extent.check(&source.fs().volume.geometry).map_err(|c| c.of_inode(handle.ino().0))?;
    let is_data = fork == Fork::Data && handle.inode.file_type() == Some(FileType::Regular);
    if extent.unwritten && !is_data {
        return Err(handle.corrupt("extent", "metadata in blocks that were never written"));
    }
    if is_data && handle.inode.flags() & flags::REALTIME != 0 {
        return Err(Error::unsupported(
            format!("inode {}, whose data is on the realtime device", handle.ino()),
            "copy the file with a kernel",
        ));
    }
    Ok(())
}
