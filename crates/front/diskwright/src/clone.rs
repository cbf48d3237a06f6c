//! Sharing blocks between host files instead of copying, within one file system.
//!
//! Uses copy_file_range(2). XFS and btrfs share ranges of whole blocks. Other file systems copy, which is no faster
//! than reading and writing, so the call is not used there.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{copy_file_range, fstatfs};

/// File systems with shared blocks (`f_type` of statfs(2)): XFS, btrfs, bcachefs.
const TYPES: [u64; 3] = [0x5846_5342, 0x9123_683e, 0xca45_1a4e];

/// Minimum size for sharing in bytes. Sharing costs as much processor time as copying 256 KiB, independent of the
/// length, but avoids writing the copy to disk.
pub(crate) const BYTES_MIN: u64 = 128 << 10;

/// Number that no host device has.
const NO_DEVICE: u64 = u64::MAX;

/// Host file that shares blocks with source files.
#[derive(Debug)]
pub(crate) struct CloneTarget {
    file: File,
    block_size: u64,
    /// Last device that cannot share blocks with this one.
    refused: AtomicU64,
}

/// Range of a host file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    pub(crate) file: &'a File,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl CloneTarget {
    /// Wraps a file. Returns `None` if it cannot share blocks.
    pub(crate) fn of(file: &File) -> Option<Self> {
        let stats = fstatfs(file).ok().filter(|stats| TYPES.contains(&(stats.f_type as u64)))?;
        let is_file = file.metadata().ok()?.is_file();
        let block_size = u64::try_from(stats.f_bsize).ok().filter(|size| size.is_power_of_two())?;
        let file = file.try_clone().ok().filter(|_| is_file)?;
        Some(Self { file, block_size, refused: AtomicU64::new(NO_DEVICE) })
    }

    /// Shares as much as possible from the start of `range` with this file at `offset`. Returns the number of shared
    /// bytes; the rest must be copied.
    pub(crate) fn share(&self, range: Range<'_>, offset: u64) -> u64 {
        let is_aligned = (range.offset | offset).is_multiple_of(self.block_size);
        let wanted = range.len / self.block_size * self.block_size;
        if !is_aligned || range.len < BYTES_MIN {
            return 0;
        }
        let Ok(metadata) = range.file.metadata() else { return 0 };
        if metadata.dev() == self.refused.load(Ordering::Relaxed) {
            return 0;
        }
        let mut done = 0;
        while done < wanted {
            let (mut from, mut to) = (range.offset + done, offset + done);
            let len = usize::try_from(wanted - done).unwrap_or(usize::MAX);
            match copy_file_range(range.file, Some(&mut from), &self.file, Some(&mut to), len) {
                Ok(0) => break,
                Ok(count) => done += count as u64,
                Err(rustix::io::Errno::INTR) => {}
                // Copying reports any error.
                Err(_) => {
                    self.refused.store(metadata.dev(), Ordering::Relaxed);
                    break;
                }
            }
        }
        done
    }
}
