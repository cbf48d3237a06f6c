//! Saying which contents are wanted soon, where devices are slow to read.

use vfs::ExtentPlace;

use super::{FileHandle, ReadFiles, bytes_at};

/// Most runs that are asked for one by one.
const RUNS_MAX: usize = 64;

/// Most bytes of a directory that are asked for when it is listed.
const LISTED_BYTES_MAX: u64 = 8 << 20;

/// What a directory has in blocks is wanted soon, because it is listed. What the map says wrong is found when it is read.
pub fn read_ahead<F: ReadFiles>(fs: &F, directory: &F::Inode) {
    let end = directory.size().min(LISTED_BYTES_MAX);
    // What fits into a block may lie in the inode, and is read at once.
    if !fs.engine().reads_ahead() || end <= 1 << fs.block_size_log() {
        return;
    }
    let mut at = 0;
    for _ in 0..RUNS_MAX {
        let Ok((place, available)) = bytes_at(fs, directory, at) else { return };
        let len = available.min(end - at);
        if let ExtentPlace::Device(place) = place {
            fs.engine().device().read_ahead(place, len);
        }
        at += len.max(1);
        if at >= end {
            return;
        }
    }
}
