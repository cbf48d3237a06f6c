//! Reads of file contents.

use std::ops::ControlFlow;

use disk::ContentKind;
use engine::Engine;
use smallvec::SmallVec;
use vfs::{Error, ExtentPlace, FilePart, FileType, MappedExtent, Result};

use super::{FileHandle, LogicalBlock, Mapping, ReadFiles};

/// Checks that an inode is a regular file.
///
/// # Errors
/// `IsADirectory`, `Invalid` for other types, `Corrupt` if the type is invalid.
pub fn require_regular(file: &impl FileHandle) -> Result<()> {
    match file.file_type()? {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

/// Reads the contents of an inode of any type, which are in blocks, into `buf`. Returns fewer bytes only at the end.
///
/// # Errors
/// `Corrupt`, `Device`.
pub fn read<F: ReadFiles>(fs: &F, file: &F::Inode, offset: u64, buf: &mut [u8]) -> Result<usize> {
    let left = file.size().saturating_sub(offset);
    let len = usize::try_from(left).unwrap_or(usize::MAX).min(buf.len());
    let mut done = 0;
    while done < len {
        let (place, available) = bytes_at(fs, file, offset + done as u64)?;
        let end = done + usize::try_from(available).unwrap_or(usize::MAX).min(len - done);
        let part = &mut buf[done..end];
        match place {
            ExtentPlace::Device(at) => {
                let rest = available.min(left - done as u64);
                note_reading(fs.engine(), offset + done as u64, at, part.len() as u64, rest);
                fs.engine().device().read_at(at, part).map_err(Error::Device)?;
            }
            _ => part.fill(0),
        }
        done = end;
    }
    Ok(len)
}

/// Maximum number of bytes that are prefetched with the first read of a file.
const START_BYTES_MAX: u64 = 1 << 20;

/// Records that `wanted` bytes of a file at `place` of the device are about to be read. `rest` is the length of the
/// contiguous run from there.
pub fn note_reading(engine: &Engine, file_offset: u64, place: u64, wanted: u64, rest: u64) {
    if !engine.reads_ahead() {
        return;
    }
    if file_offset == 0 && rest > wanted {
        // A reader of the start usually reads on, and small files are read as a whole.
        engine.device().read_ahead(place, rest.min(START_BYTES_MAX), ContentKind::Data);
    }
    engine.note_reading(place, wanted);
}

/// Maximum number of pieces for [`read_in_place`]: beyond that, copying is faster.
const PARTS_MAX: usize = 16;

/// Reports the location of bytes of a file that is not inline, as [`vfs::FileSystem::read_in_place`] specifies. The
/// caller holds the file's lock, at least shared.
///
/// # Errors
/// `Corrupt`, `Device`.
pub fn read_in_place<F: ReadFiles>(
    fs: &F,
    file: &F::Inode,
    offset: u64,
    len: u64,
    take: &mut dyn FnMut(&[FilePart<'_>]),
) -> Result<bool> {
    let end = file.size().min(offset.saturating_add(len));
    let device = fs.engine().device();
    let mut parts: SmallVec<[FilePart<'_>; PARTS_MAX]> = SmallVec::new();
    let mut at = offset;
    while at < end {
        let (ExtentPlace::Device(place), available) = bytes_at(fs, file, at)? else {
            return Ok(false);
        };
        let len = available.min(end - at);
        let Some((file, offset)) = device.in_file(place, len) else { return Ok(false) };
        let is_full = parts.len() == PARTS_MAX;
        let last = parts.last_mut();
        match last.filter(|last| std::ptr::eq(last.file, file) && last.offset + last.len == offset)
        {
            Some(last) => last.len += len,
            None if is_full => return Ok(false),
            None => parts.push(FilePart { file, offset, len }),
        }
        at += len;
    }
    if !parts.is_empty() {
        take(&parts);
    }
    Ok(!parts.is_empty())
}

/// Returns the location of byte `offset` of a file that is not inline, and the number of contiguous bytes there.
///
/// # Errors
/// `Corrupt`, `Device`.
pub(crate) fn bytes_at<F: ReadFiles>(
    fs: &F,
    file: &F::Inode,
    offset: u64,
) -> Result<(ExtentPlace, u64)> {
    let log = fs.block_size_log();
    let within = offset & ((1 << log) - 1);
    let run = fs.find_run(file, LogicalBlock(offset >> log))?;
    let place = match run.place {
        Mapping::Written(start) => ExtentPlace::Device(fs.byte_of(start) + within),
        Mapping::Unwritten(start) => ExtentPlace::Unwritten(fs.byte_of(start) + within),
        Mapping::Hole => ExtentPlace::Hole,
    };
    Ok((place, run.len.saturating_mul(1 << log) - within))
}

/// Reports the runs that cover `offset..offset + len` of a file that is not inline (clipped to the size), in order and
/// without gaps. Contiguous runs are merged. Ends early when `each` breaks.
///
/// # Errors
/// `Corrupt`, `Device`.
pub fn extent_map<F: ReadFiles>(
    fs: &F,
    file: &F::Inode,
    offset: u64,
    len: u64,
    each: &mut dyn FnMut(MappedExtent) -> ControlFlow<()>,
) -> Result<()> {
    let end = file.size().min(offset.saturating_add(len));
    let mut pending: Option<MappedExtent> = None;
    let (mut at, mut mapped) = (offset, 0_u64);
    while at < end {
        let (place, available) = match bytes_at(fs, file, at) {
            Ok(found) => found,
            Err(error) => {
                // All runs before the error are reported.
                let _ = pending.map(each);
                return Err(error);
            }
        };
        let run = MappedExtent { offset: at, len: available.min(end - at), place };
        at += run.len;
        if place != ExtentPlace::Hole {
            mapped = mapped.saturating_add(run.len);
            fs.check_mapped(file, mapped)?;
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
        // This is the last run, so the result does not matter.
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
