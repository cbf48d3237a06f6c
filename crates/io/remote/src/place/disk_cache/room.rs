//! Frees space: first the least recently opened images, then chunks of the image being read.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::image::{ABOUT, Cached};

/// An image in the cache.
struct CachedImage {
    directory: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Frees space if the cache exceeds its limit, until an eighth of the limit is free.
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
        // Processes that read it have its files open, and lose nothing.
        if !is_read && fs::remove_dir_all(&image.directory).is_ok() {
            excess = excess.saturating_sub(image.bytes);
        }
    }
    if let Some(reading) = reading.filter(|_| excess > 0) {
        reading.give_up(excess);
    }
}

fn images(cache: &Path) -> io::Result<Vec<CachedImage>> {
    let mut images = Vec::new();
    for entry in fs::read_dir(cache)? {
        let directory = entry?.path();
        // Not a directory of this cache: leave it.
        let Ok(about) = fs::metadata(directory.join(ABOUT)) else { continue };
        let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let files = ["data", "sums"].map(|name| fs::metadata(directory.join(name)));
        let bytes = files.iter().flatten().map(storage).sum();
        images.push(CachedImage { directory, bytes, used });
    }
    Ok(images)
}

/// Returns the disk usage of a file in bytes.
#[cfg(unix)]
fn storage(metadata: &Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;
    metadata.blocks() * 512
}

#[cfg(not(unix))]
fn storage(metadata: &Metadata) -> u64 {
    metadata.len()
}
