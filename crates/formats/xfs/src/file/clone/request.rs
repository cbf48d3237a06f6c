//! Ranges to be shared, checked against the files.

use operations::data::FileHandle;
use vfs::{Error, Ino, Result};

use crate::XfsCore;
use crate::file::SIZE_MAX;
use crate::format::address::FileBlock;
use crate::format::geometry::Geometry;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::map;

/// Source and target of the remaining blocks.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) from: FileBlock,
    pub(super) to: FileBlock,
    pub(super) len: u64,
}

impl Step {
    /// Returns the rest after `done` blocks.
    pub(super) fn after(self, done: u64) -> Self {
        Self { from: self.from.plus(done), to: self.to.plus(done), len: self.len - done }
    }
}

/// A range to be shared.
pub(super) struct Request {
    pub(super) from: Ino,
    pub(super) to: Ino,
    pub(super) blocks: Step,
    /// Bytes of the target.
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Request {
    /// Returns the request to share `len` bytes from the first offset in `source` to the second one in `target`, by the
    /// rules of [`vfs::FileSystem::clone_range`].
    pub(super) fn of_files(
        fs: &XfsCore,
        (source, target): (&Handle, &Handle),
        (from, to, len): (u64, u64, u64),
    ) -> Result<Self> {
        target.protection().check_change()?;
        check_devices(fs, source, target)?;
        let left = source.size().checked_sub(from);
        let left = left.filter(|left| len <= *left);
        let left = left.ok_or(Error::Invalid("the range is past the end of the source"))?;
        let len = if len == 0 { left } else { len };
        let geometry = &fs.volume.geometry;
        let is_whole = len.is_multiple_of(geometry.block_size() as u64);
        if !is_whole && len != left {
            return Err(Error::Invalid(
                "a part of a block can be shared only at the end of the source",
            ));
        }
        Self::new(geometry, (source, target), (from, to, len))
    }

    /// Like [`Self::of_files`], but the last block may be one in the middle of the source.
    pub(super) fn to_end_of_block(
        fs: &XfsCore,
        (source, target): (&Handle, &Handle),
        (from, to, len): (u64, u64, u64),
    ) -> Result<Self> {
        check_devices(fs, source, target)?;
        Self::new(&fs.volume.geometry, (source, target), (from, to, len))
    }

    fn new(
        geometry: &Geometry,
        (source, target): (&Handle, &Handle),
        (from, to, len): (u64, u64, u64),
    ) -> Result<Self> {
        let block = geometry.block_size() as u64;
        if !from.is_multiple_of(block) || !to.is_multiple_of(block) {
            return Err(Error::Invalid("shared ranges must start at a block boundary"));
        }
        let end = to.checked_add(len).filter(|end| *end <= SIZE_MAX).ok_or(Error::FileTooLarge)?;
        if !len.is_multiple_of(block) && end < target.size() {
            return Err(Error::Invalid(
                "a part of a block can be shared only at the end of the target",
            ));
        }
        let blocks = Step {
            from: FileBlock(from / block),
            to: FileBlock(to / block),
            len: len.div_ceil(block),
        };
        if blocks.to.plus(blocks.len) > FileBlock::END {
            return Err(Error::FileTooLarge);
        }
        if source.ino() == target.ino() && blocks.from.0.abs_diff(blocks.to.0) < blocks.len {
            return Err(Error::Invalid("ranges of one file that overlap cannot be shared"));
        }
        Ok(Self { from: source.ino(), to: target.ino(), blocks, start: to, end })
    }
}

/// Checks that the files may share or exchange blocks: those of one device, in units of one block.
pub(in crate::file) fn check_devices(fs: &XfsCore, source: &Handle, target: &Handle) -> Result<()> {
    let is_realtime = map::is_realtime(target, Fork::Data);
    if map::is_realtime(source, Fork::Data) != is_realtime {
        return Err(Error::Invalid("the files are on different devices"));
    }
    if is_realtime && map::realtime_of(&fs.volume, target)?.extent_blocks() != 1 {
        let advice = "copy the bytes, or create the image with realtime extents of one block";
        return Err(Error::unsupported("mapping parts of realtime extents", advice));
    }
    Ok(())
}
