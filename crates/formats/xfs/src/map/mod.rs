//! Extent maps of forks, which map the logical blocks of a file, a directory or the attributes to file-system blocks.
//!
//! A fork has its extents in a list in the inode as long as they fit, otherwise in a tree.

mod change;
mod convert;
mod fork;
mod list;
mod own;
mod provide;
mod realtime;
mod remap;
mod remove;
mod tree;

use operations::data;
use vfs::{Corruption, FileType, Result};

use crate::format::address::{FileBlock, FsBlock};
use crate::format::inode::{Fork, ForkFormat};
use crate::format::realtime::Realtime;
use crate::inode::Handle;
use crate::op::source::Source;
use crate::volume::Volume;

pub(crate) use crate::format::extent::Extent;
pub(crate) use fork::{ForkMap, ForkTree};
pub(crate) use operations::data::{Want, Was};
pub(crate) use own::may_share;

/// The location of a run of logical blocks.
pub(crate) type Place = data::Mapping<FsBlock>;

/// A contiguous run of logical blocks; a hole at the end extends to [`FileBlock::END`].
pub(crate) type Run = data::MappedRun<FsBlock>;

/// Contiguous blocks of a file, as returned by [`crate::op::Op::provide`].
pub(crate) type Piece = data::Piece<FsBlock>;

/// Returns the run that starts at block `at` of a fork. Its addresses are checked: they are within one group.
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
    // There are no blocks after the last one that a file can have, regardless of the size.
    let len = next.0.checked_sub(at.0).filter(|len| *len > 0).unwrap_or(u64::MAX - at.0);
    Ok(Run { len: len.max(1), place: Place::Hole })
}

/// Returns the last extent that starts at or before `at`, unchecked, and the start of the next one (or a lower bound of
/// it).
fn lookup(
    source: &mut impl Source,
    handle: &Handle,
    fork: Fork,
    at: FileBlock,
) -> Result<(Option<Extent>, FileBlock)> {
    match handle.inode.fork_format(fork) {
        ForkFormat::Extents => in_list(handle, fork, at),
        ForkFormat::Btree => tree::find(source, handle, fork, at),
        ForkFormat::Local | ForkFormat::Device | ForkFormat::MetaBtree => {
            Err(handle.corrupt("inode", "its contents are not in blocks"))
        }
    }
}

/// Returns the run of an extent from `at` on.
fn run_in(extent: &Extent, at: FileBlock) -> Run {
    let skip = at.0 - extent.offset.0;
    let start = extent.start.plus(skip);
    let place = if extent.unwritten { Place::Unwritten(start) } else { Place::Written(start) };
    Run { len: extent.len - skip, place }
}

/// Returns the last extent of a list that starts at or before `at`, and the start of the next one.
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
    if is_realtime(handle, fork) {
        return check_realtime(source, handle, extent);
    }
    extent.check(&source.fs().volume.geometry).map_err(|c| c.of_inode(handle.ino().0))?;
    let is_data = fork == Fork::Data && handle.inode.file_type() == Some(FileType::Regular);
    if extent.unwritten && !is_data {
        return Err(handle.corrupt("extent", "metadata in unwritten extents"));
    }
    Ok(())
}

/// Returns whether the addresses of a fork are those of the realtime device.
pub(crate) fn is_realtime(handle: &Handle, fork: Fork) -> bool {
    fork == Fork::Data && handle.inode.is_realtime()
}

/// Returns the realtime section, which contains the data of `file`.
///
/// # Errors
/// `Corrupt` if there is none, or if its fields in the superblock are invalid.
pub(crate) fn realtime_of(volume: &Volume, file: &Handle) -> Result<Realtime> {
    if let Some(realtime) = volume.geometry.realtime {
        return Ok(realtime);
    }
    Realtime::of(&volume.sb)?;
    Err(file.corrupt("extent", "on a realtime device, which the image does not have"))
}

/// Checks an extent of a realtime file.
fn check_realtime(source: &impl Source, handle: &Handle, extent: &Extent) -> Result<()> {
    let realtime = realtime_of(&source.fs().volume, handle)?;
    let is_within = extent.len > 0
        && extent.end() <= FileBlock::END
        && realtime.device_block(extent.start, extent.len).is_some();
    if is_within {
        return Ok(());
    }
    let found = format_args!("{} blocks at {}, from {}", extent.len, extent.offset, extent.start);
    let damage = Corruption::new("extent", "invalid extent").of_inode(handle.ino().0);
    Err(damage.mismatch("blocks of the realtime device", found).into())
}
