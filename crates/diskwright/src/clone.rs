//! Sharing blocks between files of the host instead of copying them, where both lie on one file system that can.
//!
//! The system call is copy_file_range(2). XFS and btrfs share the blocks of ranges that lie in whole blocks of
//! theirs; elsewhere it copies, in no better way than reading and writing, so it is asked for nothing else.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{copy_file_range, fstatfs};

/// File systems whose files can share blocks (`f_type` of statfs(2)): XFS, btrfs, bcachefs.
const TYPES: [u64; 3] = [0x5846_5342, 0x9123_683e, 0xca45_1a4e];

/// Bytes from which on sharing is worth it: it costs as much processor time as copying 256 KiB, whatever
/// the length, and saves that the copy is written to the disk later.
pub(crate) const BYTES_MIN: u64 = 128 << 10;

/// No device of the host has this number.
const NO_DEVICE: u64 = u64::MAX;

/// A file of the host that takes over blocks of others.
#[derive(Debug)]
pub(crate) struct CloneTarget {
    file: File,
    block_size: u64,
    /// The last device that cannot share with this one.
    refused: AtomicU64,
}

/// A range of a file of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range<'a> {
    pub(crate) file: &'a File,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

impl CloneTarget {
    /// `None` if this file cannot share blocks with others.
    pub(crate) fn of(file: &File) -> Option<Self> {
        let stats = fstatfs(file).ok().filter(|stats| TYPES.contains(&(stats.f_type as u64)))?;
        let is_file = file.metadata().ok()?.is_file();
        let block_size = u64::try_from(stats.f_bsize).ok().filter(|size| size.is_power_of_two())?;
        let file = file.try_clone().ok().filter(|_| is_file)?;
        Some(Self { file, block_size, refused: AtomicU64::new(NO_DEVICE) })
    }

    /// Shares what can be shared of `range`, from its start on, with the bytes of this file from `offset` on.
    /// Says how many bytes that was; the others have to be copied.
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
                // Reading and writing says what is wrong, if it is anything.
                Err(_) => {
                    self.refused.store(metadata.dev(), Ordering::Relaxed);
                    break;
                }
            }
        }
        done
    }
}
