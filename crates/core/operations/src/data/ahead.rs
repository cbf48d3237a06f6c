//! Read-ahead of directories on devices with slow reads.

use disk::ContentKind;
use vfs::ExtentPlace;

use super::{FileHandle, ReadFiles, bytes_at};

/// Maximum number of runs that are requested one by one.
const RUNS_MAX: usize = 64;

/// Maximum number of bytes of a directory that are prefetched for a listing.
const LISTED_BYTES_MAX: u64 = 8 << 20;

/// Prefetches the blocks of a directory that is about to be listed. Ignores errors in the map, which the actual read
/// will report.
pub(crate) fn read_ahead<F: ReadFiles>(fs: &F, directory: &F::Inode) {
    let end = directory.size().min(LISTED_BYTES_MAX);
    // Contents of at most one block may be inline, and one read is sufficient for them.
    if !fs.engine().reads_ahead() || end <= 1 << fs.block_size_log() {
        return;
    }
    let mut at = 0;
    for _ in 0..RUNS_MAX {
        let Ok((place, available)) = bytes_at(fs, directory, at) else { return };
        let len = available.min(end - at);
        if let ExtentPlace::Device(place) = place {
            fs.engine().device().read_ahead(place, len, ContentKind::Metadata);
        }
        at += len.max(1);
        if at >= end {
            return;
        }
    }
}
