//! A finished raw image, and the parts of it that must be read.

use std::fs::File;
use std::ops::Range;

use crate::{BlockDevice, FileAt, is_zero};

use crate::output::Error;
use crate::ranges::merged;

/// Granularity of holes and free space in bytes. Smaller ones are read.
pub(crate) const UNIT_BYTES: u64 = 4096;

/// Read size in bytes.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// Contents of a part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentKind {
    Data,
    /// A hole.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "holes can be detected only on Linux")
    )]
    Hole,
    /// Space that the image does not use, with arbitrary contents.
    Free,
}

/// A part of an image with one kind of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImageExtent {
    pub(crate) end: u64,
    pub(crate) kind: ExtentKind,
}

/// Place of the bytes of an image.
#[derive(Clone, Copy)]
enum RawSource<'a> {
    File(&'a File),
    Device(&'a dyn BlockDevice),
}

/// A finished raw image.
pub struct Raw<'a> {
    source: RawSource<'a>,
    len: u64,
    /// Free space: sorted, disjoint, in whole units.
    free: Vec<Range<u64>>,
    /// Number of threads that read ahead.
    readers: usize,
}

impl<'a> Raw<'a> {
    /// Uses the first `len` bytes of a file. The ranges in `free`, in any order, need not be preserved.
    pub fn new(file: &'a File, len: u64, free: Vec<Range<u64>>) -> Self {
        Self::of(RawSource::File(file), len, free)
    }

    /// Uses a whole device, as [`Self::new`] uses a file. The device has no holes. Reads of chunks that no range of
    /// `free` touches have the length of a chunk, except the last one.
    pub fn of_device(device: &'a dyn BlockDevice, free: Vec<Range<u64>>) -> Self {
        Self::of(RawSource::Device(device), device.len(), free)
    }

    /// Sets the number of threads that read ahead, at most 16. Formats that compress have threads of their own.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.clamp(1, 16);
        self
    }

    pub(crate) fn reader_count(&self) -> usize {
        self.readers
    }

    fn of(source: RawSource<'a>, len: u64, mut free: Vec<Range<u64>>) -> Self {
        for range in &mut free {
            range.end = range.end.min(len);
        }
        let mut whole = merged(free, 0);
        let is_device = matches!(source, RawSource::Device(_));
        for range in &mut whole {
            // Free space at the end of a device includes its last unit, which may be shorter.
            let is_last = is_device && range.end == len;
            let end = if is_last { len } else { range.end / UNIT_BYTES * UNIT_BYTES };
            *range = range.start.next_multiple_of(UNIT_BYTES)..end;
        }
        whole.retain(|range| range.start < range.end);
        Self { source, len, free: whole, readers: 1 }
    }

    /// Returns the size of the image in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the kind and the end of the piece at an offset. Pieces begin and end at whole units.
    pub(crate) fn piece_at(&self, at: u64) -> Result<ImageExtent, Error> {
        let next = self.free.partition_point(|range| range.end <= at);
        let mut limit = self.len;
        if let Some(range) = self.free.get(next) {
            if range.start <= at {
                return Ok(ImageExtent { end: range.end, kind: ExtentKind::Free });
            }
            limit = range.start;
        }
        match self.source {
            RawSource::File(file) => host_piece_at(file, at, limit),
            RawSource::Device(_) => Ok(ImageExtent { end: limit, kind: ExtentKind::Data }),
        }
    }

    /// Fills `buf` from an offset on, with zeros for holes and free space. Returns false if there is no data in the
    /// range.
    pub(crate) fn read(&self, at: u64, buf: &mut [u8]) -> Result<bool, Error> {
        let (mut done, mut has_data) = (0, false);
        while done < buf.len() {
            let piece = self.piece_at(at + done as u64)?;
            let count = (piece.end - at - done as u64).min((buf.len() - done) as u64) as usize;
            let part = &mut buf[done..done + count];
            if piece.kind == ExtentKind::Data {
                has_data = true;
                let place = at + done as u64;
                let read = match self.source {
                    RawSource::File(file) => file.read_exact_at(part, place),
                    RawSource::Device(device) => device.read_at(place, part),
                };
                read.map_err(Error::Read)?;
            } else {
                part.fill(0);
            }
            done += count;
        }
        Ok(has_data)
    }

    /// Returns the offset of the first chunk from `at` on that must be read. `at` is a multiple of the chunk size.
    pub(crate) fn next_chunk(&self, mut at: u64) -> Result<Option<u64>, Error> {
        while at < self.len {
            let piece = self.piece_at(at)?;
            if piece.kind == ExtentKind::Data || piece.end - at < CHUNK_BYTES {
                return Ok(Some(at));
            }
            at = piece.end / CHUNK_BYTES * CHUNK_BYTES;
        }
        Ok(None)
    }
}

/// Writes the units of `bytes` that are not zero. The range of the file must be a hole.
///
/// # Errors
/// Returns the errors of the host.
pub fn write_sparse(out: &File, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    for (range, is_zero) in runs(bytes, UNIT_BYTES as usize) {
        if !is_zero {
            out.write_all_at(&bytes[range.clone()], at + range.start as u64)?;
        }
    }
    Ok(())
}

/// Queries the host for the piece of a file at an offset, up to `limit`.
#[cfg(target_os = "linux")]
fn host_piece_at(file: &File, at: u64, limit: u64) -> Result<ImageExtent, Error> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;

    let data = match seek(file, SeekFrom::Data(at)) {
        Ok(data) => data / UNIT_BYTES * UNIT_BYTES,
        Err(Errno::NXIO) => limit,
        // The file does not support queries for holes, so everything counts as data.
        Err(Errno::INVAL) => return Ok(ImageExtent { end: limit, kind: ExtentKind::Data }),
        Err(e) => return Err(Error::Read(e.into())),
    };
    if data > at {
        return Ok(ImageExtent { end: data.min(limit), kind: ExtentKind::Hole });
    }
    let hole = seek(file, SeekFrom::Hole(at));
    let hole = hole.map_err(|e| Error::Read(e.into()))?.next_multiple_of(UNIT_BYTES);
    Ok(ImageExtent { end: hole.max(at + 1).min(limit), kind: ExtentKind::Data })
}

/// Holes are only queried on Linux.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the Linux version can fail")]
fn host_piece_at(_: &File, _: u64, limit: u64) -> Result<ImageExtent, Error> {
    Ok(ImageExtent { end: limit, kind: ExtentKind::Data })
}

/// Returns the runs of whole units that are zero or not.
pub(crate) fn runs(bytes: &[u8], unit: usize) -> Vec<(Range<usize>, bool)> {
    let mut runs: Vec<(Range<usize>, bool)> = Vec::new();
    let mut at = 0;
    for part in bytes.chunks(unit) {
        let (end, is_zero) = (at + part.len(), is_zero(part));
        match runs.last_mut() {
            Some((range, kind)) if *kind == is_zero => range.end = end,
            _ => runs.push((at..end, is_zero)),
        }
        at = end;
    }
    runs
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file with data, written zeros, holes, and a length that is not a multiple of a chunk.
    pub(crate) fn sample() -> (File, Vec<u8>) {
        let mut bytes = vec![0; (5 << 20) + 12 * 4096];
        let mut random = fastrand::Rng::with_seed(7);
        bytes[..300_000].iter_mut().for_each(|byte| *byte = random.u8(..));
        bytes[1_500_000..1_600_000].iter_mut().for_each(|byte| *byte = random.u8(0..4));
        bytes[(4 << 20) + 8192..(4 << 20) + 16_384].fill(0xa5);
        let end = bytes.len();
        bytes[end - 100..].fill(9);
        let file = tempfile::tempfile().unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        for (range, is_zero) in runs(&bytes, 4096) {
            if !is_zero {
                file.write_all_at(&bytes[range.clone()], range.start as u64).unwrap();
            }
        }
        // Written zeros.
        file.write_all_at(&[0; 65_536], 400_000 / 4096 * 4096).unwrap();
        (file, bytes)
    }

    #[test]
    fn pieces_cover_an_image() {
        let (file, bytes) = sample();
        let raw = Raw::new(&file, bytes.len() as u64, vec![3 << 20..(3 << 20) + 5000, 100..4196]);
        assert_eq!((raw.free.len(), &raw.free[0]), (1, &(3 << 20..(3 << 20) + 4096)));
        let (mut at, mut kinds) = (0, Vec::new());
        while at < raw.len() {
            let piece = raw.piece_at(at).unwrap();
            assert!(
                piece.end > at && (piece.end.is_multiple_of(UNIT_BYTES) || piece.end == raw.len())
            );
            if piece.kind == ExtentKind::Hole {
                assert!(is_zero(&bytes[at as usize..piece.end as usize]));
            }
            kinds.push(piece.kind);
            at = piece.end;
        }
        assert_eq!(at, raw.len());
        assert!(
            [ExtentKind::Data, ExtentKind::Hole, ExtentKind::Free]
                .iter()
                .all(|kind| kinds.contains(kind))
        );
    }

    #[test]
    fn free_ranges_that_touch_are_one() {
        let file = tempfile::tempfile().unwrap();
        let free = vec![6000..9000, 0..6000, 20_000..22_000, 30_000..90_000];
        assert_eq!(Raw::new(&file, 40_000, free).free, [0..8192, 32_768..36_864]);
    }
}
