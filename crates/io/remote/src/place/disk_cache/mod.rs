//! A cache of chunks on disk, shared by processes and kept between them.
//!
//! Each image has a directory, named by a hash of its identity, with three files. `about` contains the full identity.
//! `data` has the chunks at their offsets in the image, with holes between. `sums` has a checksum for each chunk, 0 if
//! it is not stored. Wrong bytes never match their checksum. Damage, a crash between two writes and eviction by another
//! process therefore have the same effect: the chunk is fetched again. For the same reason nothing is locked, and a
//! failure of the cache never fails a read.

mod image;
mod room;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub(crate) use image::Cached;

/// The size is checked each time this fraction of the limit was written.
const MEASURED_PARTS: u64 = 16;

/// A directory of chunks.
pub struct DiskCache {
    directory: PathBuf,
    limit: u64,
    written: AtomicU64,
    making_room: Mutex<()>,
}

impl DiskCache {
    /// Opens the cache in `directory`, which is created if missing, with about `limit` bytes. Each concurrent process
    /// may add a sixteenth before it notices that the limit is exceeded.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn open(directory: &Path, limit: u64) -> io::Result<Arc<Self>> {
        make_private(directory)?;
        let cache = Self {
            directory: directory.to_owned(),
            limit,
            written: AtomicU64::new(0),
            making_room: Mutex::new(()),
        };
        room::make(&cache.directory, limit, None);
        Ok(Arc::new(cache))
    }

    /// Returns the cached chunks of one image; `None` if they cannot be stored.
    #[must_use]
    pub(crate) fn of(
        self: &Arc<Self>,
        identity: &str,
        len: u64,
        chunk_bytes: u64,
    ) -> Option<Cached> {
        match Cached::open(self, identity, len, chunk_bytes) {
            Ok(cached) => cached,
            Err(error) => {
                let place = self.directory.display();
                tracing::warn!(
                    "{place}: caching is off, because the cache cannot be written: {error}"
                );
                None
            }
        }
    }

    /// Counts written bytes, and frees space when a check is due.
    fn wrote(&self, bytes: u64, by: &Cached) {
        let before = self.written.fetch_add(bytes, Ordering::Relaxed);
        let part = (self.limit / MEASURED_PARTS).max(1);
        if before / part == (before + bytes) / part {
            return;
        }
        if let Some(_only_one) = self.making_room.try_lock() {
            room::make(&self.directory, self.limit, Some(by));
        }
    }
}

/// Creates a directory that only its owner can access, because images may contain secrets.
#[cfg(unix)]
fn make_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn make_private(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)
}

#[cfg(test)]
mod tests;
