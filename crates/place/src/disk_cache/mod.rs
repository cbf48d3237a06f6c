//! Chunks kept on disk, beyond one process and for several at once.
//!
//! Each image has a directory, named by a hash of what it is, with three files: `about` says in full what it is, `data`
//! has the chunks where the image has them, with holes between, and `sums` has a checksum of each, 0 where there is none.
//! Whatever happens to these files, wrong bytes have no right checksum, so that damage, a crash between two writes and
//! another process that makes room are all the same thing: the chunk is not there, and is fetched again. For the same
//! reason nothing is locked, and no failure of the cache is a failure of a reading.

mod image;
mod room;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

pub use image::Cached;

/// After this part of the limit has been written, room is made if there is too much.
const MEASURED_PARTS: u64 = 16;

/// A directory of chunks.
pub struct DiskCache {
    directory: PathBuf,
    limit: u64,
    written: AtomicU64,
    making_room: Mutex<()>,
}

impl DiskCache {
    /// The cache in `directory`, which is made if it is not there, for at most about `limit` bytes: several processes
    /// may each add a sixteenth before they notice.
    ///
    /// # Errors
    /// If it cannot be made.
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

    /// The chunks of one image; `None` if they cannot be kept.
    #[must_use]
    pub fn of(self: &Arc<Self>, identity: &str, len: u64, chunk_bytes: u64) -> Option<Cached> {
        match Cached::open(self, identity, len, chunk_bytes) {
            Ok(cached) => cached,
            Err(error) => {
                let place = self.directory.display();
                tracing::warn!("{place}: nothing is kept here: {error}");
                None
            }
        }
    }

    /// Counts what was written, and makes room if it is time.
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

/// Makes a directory that only its owner can look into: images may hold secrets.
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
