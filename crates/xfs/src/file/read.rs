//! Reading the contents of files.

use std::ops::ControlFlow;

use vfs::{Error, ExtentPlace, FileType, MappedExtent, Result};

use crate::Xfs;
use crate::bmap::{self, Place, Run};
use crate::format::address::{FileBlock, FsBlock};
use crate::format::inode::Fork;
use crate::inode::Handle;

/// `Ok` if it is a regular file.
pub(super) fn require_regular(file: &Handle) -> Result<()> {
    match file.file_type()? {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

/// Reads as [`vfs::FileSystem::read`] does.
pub(crate) fn read(fs: &Xfs, file: &Handle, offset: u64, buf: &mut [u8]) -> Result<usize> {
    require_regular(file)?;
    let left = file.inode.size().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    let mut done = 0;
    while done < len {
        let (place, available) = bytes_at(fs, file, offset + done as u64)?;
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

/// Where byte `offset` of a file is, and how many bytes lie there together.
pub(super) fn bytes_at(fs: &Xfs, file: &Handle, offset: u64) -> Result<(ExtentPlace, u64)> {
    let geometry = &fs.volume.geometry;
    let log = geometry.block_log;
    let within = offset & ((1 << log) - 1);
    let block = FileBlock(offset >> log);
    let Run { len, place, .. } = bmap::run_at(&mut &*fs, file, Fork::Data, block)?;
    let byte_of = |start: FsBlock| geometry.byte_of(geometry.device_block(start)) + within;
    let place = match place {
        Place::Written(start) => ExtentPlace::Device(byte_of(start)),
        Place::Unwritten(start) => ExtentPlace::Unwritten(byte_of(start)),
        Place::Hole => ExtentPlace::Hole,
    };
    let bytes = len.saturating_mul(1 << log);
    Ok((place, bytes - within))
}

/// Reports runs as [`vfs::FileSystem::extent_map`] does; those that continue each other come as one.
pub(crate) fn extent_map(
    fs: &Xfs,
    file: &Handle,
    offset: u64,
    len: u64,
    each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
) -> Result<()> {
    require_regular(file)?;
    let end = file.inode.size().min(offset.saturating_add(len));
    let mut pending: Option<MappedExtent> = None;
    let mut at = offset;
    while at < end {
        let (place, available) = bytes_at(fs, file, at)?;
        let run = MappedExtent { offset: at, len: available.min(end - at), place };
        at += run.len;
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
        // Whether to go on does not matter any more.
        let _ = each(last);
    }
    Ok(())
}

fn continues(before: &MappedExtent, run: &MappedExtent) -> bool {
    match (before.place, run.place) {
        (ExtentPlace::Device(a), ExtentPlace::Device(b))
        | (ExtentPlace::Unwritten(a), ExtentPlace::Unwritten(b)) => a + before.len == b,
        (ExtentPlace::Hole, ExtentPlace::Hole) => true,
        _ => false,
    }
}
