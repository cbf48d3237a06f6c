//! The contents of files and symbolic links.

use std::ops::ControlFlow;

use vfs::{Error, ExtentPlace, FileType, MappedExtent, Result};

use super::inline;
use super::map::{self, Place, Run};
use crate::Ext4;
use crate::format::address::FileBlock;
use crate::format::features::{Incompat, RoCompat};
use crate::format::inode::{I_BLOCK_SIZE, flags};
use crate::read::inode::Handle;

/// Longest target of a symbolic link, in bytes; a block may be shorter.
const SYMLINK_SIZE_MAX: u64 = 4096;

/// Reads from a regular file into `buf`; fewer bytes only at the end of the file.
pub(crate) fn read(fs: &Ext4, handle: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
    require_regular(handle)?;
    if handle.has_flag(flags::ENCRYPT) {
        return Err(Error::Encrypted);
    }
    read_contents(fs, handle, offset, buf)
}

fn require_regular(handle: &Handle) -> Result<()> {
    match handle.file_type()? {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

/// [`read`], of an inode of any type.
pub(crate) fn read_contents(
    fs: &Ext4,
    handle: &Handle,
    offset: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let left = handle.inode.size().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    let buf = &mut buf[..len];
    if len == 0 {
        return Ok(0);
    }
    if handle.has_flag(flags::INLINE_DATA) {
        // mke2fs makes inline files whose size ends in a hole.
        let contents = inline::all(fs, handle)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        let there = &contents[from..contents.len().min(from.saturating_add(len))];
        let (data, hole) = buf.split_at_mut(there.len());
        data.copy_from_slice(there);
        hole.fill(0);
        return Ok(len);
    }
    let mut done = 0;
    while done < len {
        let (place, available) = bytes_at(fs, handle, offset + done as u64)?;
        let end = done + usize::try_from(available).unwrap_or(usize::MAX).min(len - done);
        let part = &mut buf[done..end];
        match place {
            ExtentPlace::Device(at) => fs.read_data(at, part)?,
            _ => part.fill(0),
        }
        done = end;
    }
    Ok(len)
}

/// Where byte `offset` of a file that is not inline is, and how many bytes lie there together.
pub(crate) fn bytes_at(fs: &Ext4, handle: &Handle, offset: u64) -> Result<(ExtentPlace, u64)> {
    let log = fs.volume.geometry.block_size_log;
    let within = offset & ((1 << log) - 1);
    let Ok(block) = u32::try_from(offset >> log) else {
        // No file can have blocks there, whatever its size says.
        return Ok((ExtentPlace::Hole, u64::MAX));
    };
    let Run { place, len } = map::run_at(&mut &*fs, handle, FileBlock(block))?;
    let place = match place {
        Place::Written(start) => ExtentPlace::Device((start.0 << log) + within),
        Place::Unwritten(start) => ExtentPlace::Unwritten((start.0 << log) + within),
        Place::Hole => ExtentPlace::Hole,
    };
    Ok((place, (len << log) - within))
}

/// Reports the runs that cover `offset..offset + len` of a regular file (clipped to the size), in
/// order and without gaps; runs that continue each other come as one. Ends early when `each` breaks.
pub(crate) fn extent_map(
    fs: &Ext4,
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
    let mut pending: Option<MappedExtent> = None;
    let mut at = offset;
    let mut space_left = mapped_bytes_max(fs);
    while at < end {
        let (place, available) = bytes_at(fs, handle, at)?;
        let run = MappedExtent { offset: at, len: available.min(end - at), place };
        at += run.len;
        if place != ExtentPlace::Hole {
            space_left = space_left.checked_sub(run.len).ok_or_else(|| {
                handle.corrupt("block map", "more blocks than the file system has")
            })?;
        }
        match &mut pending {
            Some(before) if continues(before, &run) => before.len += run.len,
            _ => {
                if let Some(before) = pending.replace(run)
                    && each(before).is_break()
                {
                    return Ok(());
                }
            }
        }
    }
    if let Some(last) = pending {
        let _ = each(last);
    }
    Ok(())
}

/// Bytes of the device that one file can take. Without this bound, a block of pointers to itself
/// would make files of terabytes. Files of an image whose blocks may be shared have no such bound.
fn mapped_bytes_max(fs: &Ext4) -> u64 {
    let geometry = &fs.volume.geometry;
    if fs.volume.sb.features.ro_compat(RoCompat::SHARED_BLOCKS) {
        return u64::MAX;
    }
    geometry.blocks_count << geometry.block_size_log
}

fn continues(before: &MappedExtent, run: &MappedExtent) -> bool {
    match (before.place, run.place) {
        (ExtentPlace::Device(a), ExtentPlace::Device(b))
        | (ExtentPlace::Unwritten(a), ExtentPlace::Unwritten(b)) => a + before.len == b,
        (ExtentPlace::Hole, ExtentPlace::Hole) => true,
        _ => false,
    }
}

/// The target of a symbolic link.
pub(crate) fn readlink(fs: &Ext4, handle: &Handle) -> Result<Vec<u8>> {
    if handle.file_type()? != FileType::Symlink {
        return Err(Error::Invalid("not a symbolic link"));
    }
    if handle.has_flag(flags::ENCRYPT) {
        return Err(Error::Encrypted);
    }
    let size = handle.inode.size();
    if size == 0 || size > SYMLINK_SIZE_MAX.min(fs.volume.block_size() as u64) {
        return Err(handle.corrupt("symbolic link", "impossible length"));
    }
    let target = if is_fast(fs, handle) {
        handle.inode.i_block()[..size as usize].to_vec()
    } else {
        let mut target = vec![0; size as usize];
        read_contents(fs, handle, 0, &mut target)?;
        target
    };
    if target.contains(&0) {
        return Err(handle.corrupt("symbolic link", "its target holds a zero byte"));
    }
    Ok(target)
}

/// Whether the target of a symbolic link lies in `i_block` itself: then the inode has no blocks
/// but that of its extended attributes. With `ea_inode`, the values of attributes count too, and the
/// size alone tells.
pub(crate) fn is_fast(fs: &Ext4, handle: &Handle) -> bool {
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
