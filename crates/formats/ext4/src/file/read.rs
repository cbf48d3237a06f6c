//! Reading file contents and symbolic links.

use std::ops::ControlFlow;

use operations::data::{self, require_regular};
use vfs::{Error, ExtentPlace, FilePart, FileType, MappedExtent, Result};

use super::encrypted;
use crate::Ext4Core;
use crate::format::features::Incompat;
use crate::format::inode::{I_BLOCK_SIZE, flags};
use crate::inode::Handle;
use crate::inode::{encryption, inline};

/// Maximum length of a symbolic link target in bytes. A block may be shorter.
const SYMLINK_SIZE_MAX: u64 = 4096;

/// Reads from a regular file into `buf`. Returns fewer bytes only at the end of the file.
pub(crate) fn read(fs: &Ext4Core, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
    require_regular(handle)?;
    if handle.has_flag(flags::ENCRYPT) {
        return encrypted::read(fs, handle, offset, buf);
    }
    read_contents(fs, handle, offset, buf)
}

/// Reports the device positions of bytes of a regular file. See [`vfs::FileSystem::read_in_place`].
pub(crate) fn read_in_place(
    fs: &Ext4Core,
    handle: &Handle,
    offset: u64,
    len: u64,
    take: &mut dyn FnMut(&[FilePart<'_>]),
) -> Result<bool> {
    require_regular(handle)?;
    if handle.has_flag(flags::ENCRYPT) {
        return encryption::required(fs, handle).map(|_| false);
    }
    if handle.has_flag(flags::INLINE_DATA) {
        return Ok(false);
    }
    data::read_in_place(fs, handle, offset, len, take)
}

/// Like [`read`], but for an inode of any type.
pub(crate) fn read_contents(
    fs: &Ext4Core,
    handle: &Handle,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    if handle.has_flag(flags::INLINE_DATA) {
        return read_inline(fs, handle, offset, buf);
    }
    data::read(fs, handle, offset, buf)
}

fn read_inline(fs: &Ext4Core, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let left = handle.inode.size().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    if len == 0 {
        return Ok(0);
    }
    // mke2fs creates inline files whose size ends in a hole.
    let contents = inline::all(fs, handle)?;
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
    let there = &contents[from..contents.len().min(from.saturating_add(len))];
    let (data, hole) = buf[..len].split_at_mut(there.len());
    data.copy_from_slice(there);
    hole.fill(0);
    Ok(len)
}

/// Reports the runs of `offset..offset + len` of a regular file, clipped to its size, in order and without gaps.
/// Adjacent runs are reported as one. Stops when `each` breaks.
pub(crate) fn extent_map(
    fs: &Ext4Core,
    handle: &Handle,
    offset: u64,
    len: u64,
    each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
) -> Result<()> {
    require_regular(handle)?;
    let end = handle.inode.size().min(offset.saturating_add(len));
    if offset >= end {
        return Ok(());
    }
    if handle.has_flag(flags::INLINE_DATA) {
        let inline_end = end.min(inline::all(fs, handle)?.len() as u64);
        let data = (offset..inline_end, ExtentPlace::Inline);
        let hole = (offset.max(inline_end)..end, ExtentPlace::Hole);
        for (range, place) in [data, hole] {
            let len = range.end.saturating_sub(range.start);
            if len > 0 && each(MappedExtent { offset: range.start, len, place }).is_break() {
                break;
            }
        }
        return Ok(());
    }
    data::extent_map(fs, handle, offset, len, each)
}

/// Returns the target of a symbolic link.
pub(crate) fn readlink(fs: &Ext4Core, handle: &Handle) -> Result<Vec<u8>> {
    if handle.file_type()? != FileType::Symlink {
        return Err(Error::Invalid("not a symbolic link"));
    }
    let target = if handle.has_flag(flags::ENCRYPT) {
        encrypted::target(fs, handle, stored_target)?
    } else {
        stored_target(fs, handle)?
    };
    if target.contains(&0) {
        return Err(handle.corrupt("symbolic link", "its target contains a NUL byte"));
    }
    Ok(target)
}

/// Returns the stored bytes of the target of a symbolic link.
fn stored_target(fs: &Ext4Core, handle: &Handle) -> Result<Vec<u8>> {
    let size = handle.inode.size();
    if size == 0 || size > SYMLINK_SIZE_MAX.min(fs.volume.block_size() as u64) {
        return Err(handle.corrupt("symbolic link", "invalid length"));
    }
    if is_fast(fs, handle) {
        return Ok(handle.inode.i_block()[..size as usize].to_vec());
    }
    let mut target = vec![0; size as usize];
    read_contents(fs, handle, 0, &mut target)?;
    Ok(target)
}

/// Returns whether the target of a symbolic link is stored in `i_block`. In that case the inode has no blocks except
/// the one for extended attributes. With `ea_inode`, attribute values count as blocks too, so only the size decides.
pub(crate) fn is_fast(fs: &Ext4Core, handle: &Handle) -> bool {
    if fs.volume.sb.features.incompat(Incompat::EA_INODE) {
        return handle.inode.size() < I_BLOCK_SIZE as u64 && !handle.has_flag(flags::INLINE_DATA);
    }
    let geometry = fs.volume.geometry;
    let attributes = if handle.inode.file_acl() == 0 {
        0
    } else {
        u64::from(geometry.block_size() / 512) << geometry.cluster_blocks_log
    };
    handle.inode.size() < I_BLOCK_SIZE as u64
        && !handle.has_flag(flags::INLINE_DATA)
        && handle.inode.blocks_512(geometry.block_size()) <= attributes
}
