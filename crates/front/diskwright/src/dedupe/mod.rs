//! Sharing of equal contents in an existing XFS image (`diskwright dedupe`).
//!
//! Candidates are found by size and a fast, non-cryptographic hash (XXH3). The file system compares their bytes before
//! it shares blocks, so neither a hash collision nor a change in between changes contents. Times do not change. Each
//! step is one operation: a crash leaves fewer shared blocks, and otherwise the same files.
//!
//! ```no_run
//! use diskwright::Image;
//! use diskwright::dedupe::dedupe;
//! use diskwright::build::Dedupe;
//! # use diskwright::copy::Observer;
//! # struct Quiet;
//! # impl Observer for Quiet {
//! #     fn file(&mut self, _: &[u8]) {}
//! #     fn copied(&mut self, _: u64) {}
//! #     fn warning(&mut self, _: &str) {}
//! # }
//!
//! # fn main() -> diskwright::Result<()> {
//! let image = Image::open_writable("root.img")?;
//! let report = dedupe(image.file_system()?.paths(), b"/", Dedupe::Files, &mut Quiet)?;
//! println!("{} bytes share blocks now", report.shared);
//! image.close()?;
//! # Ok(()) }
//! ```

mod blocks;
mod candidates;
mod files;

use std::ops::ControlFlow;

use serde::Serialize;
use vfs::{ExtentPlace, FileSystem, Ino, MappedExtent, Paths};

use crate::build::Dedupe;
use crate::copy::Observer;
use crate::{Error, Result};
use candidates::{Candidate, Candidates};

/// Read size in bytes; a multiple of every block size.
const READ_BYTES: usize = 256 << 10;

/// Result of a deduplication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DedupeReport {
    /// Number of regular files that were examined; several names of a file count once.
    pub files: u64,
    /// Bytes of their contents that were read.
    pub bytes: u64,
    /// Bytes that share blocks now and did not before.
    pub shared: u64,
    /// Bytes of the image that became free.
    pub freed: u64,
    /// Number of files that could not be read or changed.
    pub left_out: u64,
}

/// Shares the blocks of files with equal contents at and below `path`. With [`Dedupe::Blocks`], also those of equal
/// blocks at any block offset.
///
/// Files that cannot be read or changed are reported to `observer` and left out. Memory: about 100 bytes and the path
/// for each file, and with [`Dedupe::Blocks`] 48 bytes for each different block.
///
/// # Errors
/// If the image cannot share blocks, a directory cannot be read, or the observer cancels. Blocks shared before remain
/// shared.
pub fn dedupe(
    paths: Paths<'_>,
    path: &[u8],
    unit: Dedupe,
    observer: &mut dyn Observer,
) -> Result<DedupeReport> {
    let fs = paths.file_system();
    let at = |source| Error::file(path, source);
    if !fs.can_clone() {
        return Err(at(vfs::Error::unsupported(
            "sharing blocks between files",
            "use an XFS image with the feature reflink",
        )));
    }
    let candidates = Candidates::below(paths, path)?;
    let before = free_bytes(fs).map_err(at)?;
    let block_size = fs.statfs().map_err(at)?.block_size.into();
    let report = DedupeReport { files: candidates.len() as u64, ..DedupeReport::default() };
    let mut pass = Pass { fs, observer, report, block_size, buffer: vec![0; READ_BYTES] };
    pass.share_files(&candidates)?;
    if unit == Dedupe::Blocks {
        pass.share_blocks(&candidates)?;
    }
    // Until then, freed blocks do not count as free.
    fs.sync().map_err(at)?;
    let freed = free_bytes(fs).map_err(at)?.saturating_sub(before);
    Ok(DedupeReport { freed, ..pass.report })
}

fn free_bytes(fs: &dyn FileSystem) -> vfs::Result<u64> {
    let found = fs.statfs()?;
    Ok(found.blocks_free * u64::from(found.block_size))
}

/// One pass over the candidates.
struct Pass<'a> {
    fs: &'a dyn FileSystem,
    observer: &'a mut dyn Observer,
    report: DedupeReport,
    block_size: u64,
    buffer: Vec<u8>,
}

impl Pass<'_> {
    /// Reports the next file.
    ///
    /// # Errors
    /// If the observer cancels.
    fn begin(&mut self, candidate: &Candidate) -> Result<()> {
        if !self.observer.goes_on() {
            return Err(Error::Stopped);
        }
        self.observer.file(&candidate.path);
        Ok(())
    }

    /// Reports a file that could not be read or changed.
    ///
    /// # Errors
    /// If the device failed or the image is full: other files would fail, too.
    fn leave_out(&mut self, candidate: &Candidate, source: vfs::Error) -> Result<()> {
        let ends = matches!(source, vfs::Error::Device(_) | vfs::Error::NoSpace);
        let error = Error::file(&candidate.path, source);
        if ends {
            return Err(error);
        }
        self.report.left_out += 1;
        self.observer.unreadable(&error);
        Ok(())
    }

    fn count_read(&mut self, bytes: u64) {
        self.report.bytes += bytes;
        self.observer.copied(bytes);
    }

    /// Shares the blocks of two equal ranges, unless they share them already. A range that differs is left as it is.
    fn share(&mut self, from: (Ino, u64), to: (Ino, u64), len: u64) -> vfs::Result<()> {
        let (ours, theirs) = (extents(self.fs, from, len)?, extents(self.fs, to, len)?);
        let unshared = unshared_bytes(&ours, &theirs);
        if unshared == 0 {
            return Ok(());
        }
        match self.fs.dedupe_range(from, to, len) {
            Ok(true) => self.report.shared += unshared,
            // Files on the data device and on the realtime device cannot share blocks.
            Ok(false) | Err(vfs::Error::Invalid(_)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Returns the extents of a range, with offsets from its start.
fn extents(
    fs: &dyn FileSystem,
    (ino, start): (Ino, u64),
    len: u64,
) -> vfs::Result<Vec<MappedExtent>> {
    let mut found = Vec::new();
    fs.extent_map(ino, start, len, &mut |extent| {
        found.push(MappedExtent { offset: extent.offset - start, ..extent });
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Returns the bytes on the device in `theirs` that are at another place in `ours`.
fn unshared_bytes(ours: &[MappedExtent], theirs: &[MappedExtent]) -> u64 {
    let mut rest = ours.iter().peekable();
    let mut unshared = 0;
    for extent in theirs {
        let (mut at, end) = (extent.offset, extent.offset + extent.len);
        while at < end {
            while rest.next_if(|other| other.offset + other.len <= at).is_some() {}
            let other = rest.peek();
            let len = other.map_or(end, |other| end.min(other.offset + other.len)) - at;
            let theirs = device_offset(extent, at);
            if theirs.is_some() && theirs != other.and_then(|other| device_offset(other, at)) {
                unshared += len;
            }
            at += len;
        }
    }
    unshared
}

/// Returns the location of a byte on the device; `None` in holes.
fn device_offset(extent: &MappedExtent, at: u64) -> Option<u64> {
    match extent.place {
        ExtentPlace::Device(start) => Some(start + (at - extent.offset)),
        ExtentPlace::Unwritten(_) | ExtentPlace::Hole | ExtentPlace::Inline => None,
    }
}
