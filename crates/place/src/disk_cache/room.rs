//! Making room: images that nobody opened for the longest time go first, then chunks of the one that is being read.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::image::{ABOUT, Cached};

/// An image in the cache.
struct Kept {
    directory: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Gives up what is needed for the cache to have an eighth of its limit free, if it is above the limit.
pub(super) fn make(cache: &Path, limit: u64, reading: Option<&Cached>) {
    let Ok(mut images) = images(cache) else { return };
    let total: u64 = images.iter().map(|image| image.bytes).sum();
    if total <= limit {
        return;
    }
    let mut excess = total - (limit - limit / 8);
    images.sort_by_key(|image| image.used);
    for image in images {
        if excess == 0 {
            return;
        }
        let is_read = reading.is_some_and(|reading| reading.directory == image.directory);
        // Whoever reads it has its files open, and loses nothing.
        if !is_read && fs::remove_dir_all(&image.directory).is_ok() {
            excess = excess.saturating_sub(image.bytes);
        }
    }
    if let Some(reading) = reading.filter(|_| excess > 0) {
        reading.give_up(excess);
    }
}

fn images(cache: &Path) -> io::Result<Vec<Kept>> {
    let mut images = Vec::new();
    for entry in fs::read_dir(cache)? {
        let directory = entry?.path();
        // What is no image of the cache is none of its business.
        let Ok(about) = fs::metadata(directory.join(ABOUT)) else { continue };
        let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let files = ["data", "sums"].map(|name| fs::metadata(directory.join(name)));
        let bytes = files.iter().flatten().map(storage).sum();
        images.push(Kept { directory, bytes, used });
    }
    Ok(images)
}

/// What a file takes on disk, in bytes.
#[cfg(unix)]
fn storage(metadata: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.blocks() * 512
}

#[cfg(not(unix))]
fn storage(metadata: &Metadata) -> u64 {
    metadata.len()
}
