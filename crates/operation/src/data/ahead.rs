//! Saying which contents are wanted soon, where devices are slow to read.

use vfs::ExtentPlace;

use super::{FileHandle, ReadFiles, bytes_at};

/// Most runs that are asked for one by one.
const RUNS_MAX: usize = 64;

/// All of what an inode has in blocks is wanted soon, but no more than `bytes_max`: a directory that is listed. What the
/// map says wrong is found when it is read.
pub fn read_ahead<F: ReadFiles>(fs: &F, file: &F::Inode, bytes_max: u64) {
    let end = file.size().min(bytes_max);
    // What fits into a block may lie in the inode, and is read at once.
    if !fs.engine().reads_ahead() || end <= 1 << fs.block_size_log() {
        return;
    }
    let mut at = 0;
    for _ in 0..RUNS_MAX {
        let Ok((place, available)) = bytes_at(fs, file, at) else { return };
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
