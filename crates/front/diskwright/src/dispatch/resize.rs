//! Dispatch of size changes to the formats.

use std::sync::Arc;

use disk::BlockDevice;
use serde::Serialize;
use vfs::{Error, Result};

use crate::Format;

/// Size of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Size in bytes.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of groups: block groups of ext4, allocation groups of XFS.
    pub groups: u32,
}

/// Target size for shrinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Least {
    /// At most this many bytes.
    Bytes(u64),
    /// The minimum.
    Possible,
}

/// Size before and after.
pub(crate) struct SizeChange {
    pub(crate) before: Size,
    pub(crate) after: Size,
}

/// Returns the current size of a file system and its size after growing to at most `bytes` bytes.
pub(crate) fn plan_growth(
    format: Format,
    device: &dyn BlockDevice,
    bytes: u64,
) -> Result<SizeChange> {
    match format {
        Format::Ext4 => {
            let blocks = bytes / block_size_of_ext(device)?;
            Ok(of_ext(ext4::resize::plan_growth(device, blocks)?))
        }
        Format::Xfs => xfs::resize::plan(device, bytes).map(of_xfs),
    }
}

/// Grows a file system to at most `bytes` bytes. The device reads as zeros from `zeros_from` on.
pub(crate) fn grow(
    format: Format,
    device: Arc<dyn BlockDevice>,
    bytes: u64,
    zeros_from: u64,
) -> Result<SizeChange> {
    match format {
        Format::Ext4 => {
            let blocks = bytes / block_size_of_ext(&*device)?;
            Ok(of_ext(ext4::resize::grow(device, blocks, zeros_from)?))
        }
        Format::Xfs => xfs::resize::grow(device, bytes).map(of_xfs),
    }
}

/// Grows the realtime section of an XFS image.
pub(crate) fn grow_realtime(
    format: Format,
    device: Arc<dyn BlockDevice>,
    bytes: u64,
) -> Result<SizeChange> {
    match format {
        Format::Ext4 => Err(Error::Invalid("ext4 has no realtime section")),
        Format::Xfs => {
            let time = crate::image::shared::now();
            Ok(of_realtime(xfs::resize::grow_realtime(device, bytes, time)?))
        }
    }
}

/// Returns the result of growing the realtime section without writing.
pub(crate) fn plan_realtime(
    format: Format,
    device: &dyn BlockDevice,
    bytes: u64,
) -> Result<SizeChange> {
    match format {
        Format::Ext4 => Err(Error::Invalid("ext4 has no realtime section")),
        Format::Xfs => xfs::resize::plan_realtime(device, bytes).map(of_realtime),
    }
}

/// Returns the result of shrinking without writing.
pub(crate) fn plan_shrink(
    format: Format,
    device: Arc<dyn BlockDevice>,
    request: Least,
) -> Result<SizeChange> {
    match format {
        Format::Ext4 => {
            let request = wish_of_ext(&*device, request)?;
            let (before, after) = ext4::resize::plan_shrinking(&device, request)?;
            Ok(SizeChange { before: size_of_ext(before), after: size_of_ext(after) })
        }
        Format::Xfs => Err(no_shrinking_of_xfs()),
    }
}

/// Shrinks a file system.
pub(crate) fn shrink(
    format: Format,
    device: Arc<dyn BlockDevice>,
    request: Least,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<SizeChange> {
    match format {
        Format::Ext4 => {
            let request = wish_of_ext(&*device, request)?;
            let shrunk = ext4::resize::shrink(device, request, progress)?;
            let (before, after) = (size_of_ext(shrunk.before), size_of_ext(shrunk.after));
            Ok(SizeChange { before, after })
        }
        Format::Xfs => Err(no_shrinking_of_xfs()),
    }
}

fn wish_of_ext(device: &dyn BlockDevice, request: Least) -> Result<ext4::resize::SizeRequest> {
    Ok(match request {
        Least::Bytes(bytes) => {
            ext4::resize::SizeRequest::Blocks(bytes / block_size_of_ext(device)?)
        }
        Least::Possible => ext4::resize::SizeRequest::Minimum,
    })
}

fn no_shrinking_of_xfs() -> Error {
    let advice = "create a new image: diskwright convert IN OUT --size min";
    Error::unsupported("shrinking an XFS image in place", advice)
}

fn of_xfs(growth: xfs::resize::Growth) -> SizeChange {
    let size = |blocks, groups| size_of_blocks(growth.block_size, blocks, groups);
    SizeChange {
        before: size(growth.blocks_before, growth.groups_before),
        after: size(growth.blocks_after, growth.groups_after),
    }
}

fn of_realtime(growth: xfs::resize::RealtimeGrowth) -> SizeChange {
    let size = |blocks, groups| size_of_blocks(growth.block_size, blocks, groups);
    SizeChange {
        before: size(growth.blocks_before, growth.groups_before),
        after: size(growth.blocks_after, growth.groups_after),
    }
}

fn size_of_blocks(block_size: u32, blocks: u64, groups: u32) -> Size {
    Size { bytes: blocks * u64::from(block_size), blocks, block_size, groups }
}

fn block_size_of_ext(device: &dyn BlockDevice) -> Result<u64> {
    ext4::resize::size(device).map(|size| size.block_size.into())
}

fn of_ext(grown: ext4::resize::Grown) -> SizeChange {
    SizeChange { before: size_of_ext(grown.before), after: size_of_ext(grown.after) }
}

fn size_of_ext(size: ext4::resize::Size) -> Size {
    Size {
        bytes: size.bytes(),
        blocks: size.blocks,
        block_size: size.block_size,
        groups: size.groups,
    }
}

/// Returns the size of a file system.
pub(crate) fn size(format: Format, device: &dyn BlockDevice) -> Result<Size> {
    match format {
        Format::Ext4 => ext4::resize::size(device).map(size_of_ext),
        Format::Xfs => Ok(of_xfs(xfs::resize::plan(device, device.len())?).before),
    }
}
