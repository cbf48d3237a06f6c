//! Cached chunks of one image.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use disk::{BlockDevice, FileAt, FileDevice};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use super::{DiskCache, make_private};

/// Name of the file that identifies the image.
pub(super) const ABOUT: &str = "about";

/// Size of a checksum in bytes.
const SUM_BYTES: u64 = 8;

/// Number of checksums that are read together while space is freed.
const SUMS_AT_ONCE: u64 = 4096;

/// The chunks of one image on disk.
pub(crate) struct Cached {
    cache: Arc<DiskCache>,
    pub(super) directory: PathBuf,
    data: FileDevice,
    sums: File,
    chunk_bytes: u64,
    /// Next chunk to evict (clock hand).
    hand: AtomicU64,
}

impl Cached {
    /// Opens the directory of an image. Returns `None` if it belongs to another image.
    pub(super) fn open(
        cache: &Arc<DiskCache>,
        identity: &str,
        len: u64,
        chunk_bytes: u64,
    ) -> io::Result<Option<Self>> {
        let about = format!("diskwright 1\n{len} {chunk_bytes}\n{identity}\n");
        let directory = cache.directory.join(format!("{:032x}", xxh3_128(about.as_bytes())));
        make_private(&directory)?;
        if !is_about(&directory, &about)? {
            return Ok(None);
        }
        let sums = open_sized(&directory.join("sums"), len.div_ceil(chunk_bytes) * SUM_BYTES)?;
        let data = FileDevice::new(open_sized(&directory.join("data"), len)?)?;
        let (cache, hand) = (Arc::clone(cache), AtomicU64::new(0));
        Ok(Some(Self { cache, directory, data, sums, chunk_bytes, hand }))
    }

    /// Checks whether a chunk is stored, without verifying its contents.
    #[must_use]
    pub(crate) fn has(&self, chunk: u64) -> bool {
        self.sum(chunk) != 0
    }

    /// Returns a chunk if it is stored and its checksum is right.
    #[must_use]
    pub(crate) fn get(&self, chunk: u64) -> Option<Bytes> {
        let sum = self.sum(chunk);
        if sum == 0 {
            return None;
        }
        let (start, len) = self.place(chunk)?;
        let mut bytes = vec![0; len as usize];
        self.data.read_at(start, &mut bytes).ok()?;
        if sum_of(chunk, &bytes) != sum {
            self.forget(chunk);
            return None;
        }
        Some(bytes.into())
    }

    /// Stores a chunk. Failures are only logged.
    pub(crate) fn put(&self, chunk: u64, bytes: &[u8]) {
        let Some((start, len)) = self.place(chunk) else { return };
        if bytes.len() as u64 != len {
            return;
        }
        let sum = sum_of(chunk, bytes).to_le_bytes();
        let written = self.data.write_at(start, bytes);
        let written = written.and_then(|()| self.sums.write_all_at(&sum, chunk * SUM_BYTES));
        match written {
            Ok(()) => self.cache.wrote(len, self),
            Err(error) => tracing::debug!("{}: {error}", self.directory.display()),
        }
    }

    /// Evicts chunks until `bytes` bytes are free, or no chunk is left.
    pub(super) fn give_up(&self, bytes: u64) {
        let chunks = self.data.len().div_ceil(self.chunk_bytes);
        let (mut freed, mut passed) = (0, 0);
        while freed < bytes && passed < chunks {
            let hand = self.hand.load(Ordering::Relaxed) % chunks;
            let count = SUMS_AT_ONCE.min(chunks - hand);
            let mut sums = vec![0; (count * SUM_BYTES) as usize];
            if self.sums.read_exact_at(&mut sums, hand * SUM_BYTES).is_err() {
                return;
            }
            let mut next = hand + count;
            for (chunk, sum) in (hand..).zip(sums.chunks(SUM_BYTES as usize)) {
                if freed >= bytes {
                    next = chunk;
                    break;
                }
                if sum.iter().any(|&byte| byte != 0) {
                    freed += self.forget(chunk);
                }
            }
            passed += next - hand;
            self.hand.store(next, Ordering::Relaxed);
        }
    }

    /// Frees the storage of a chunk and returns the number of bytes freed. If the host cannot punch holes, all chunks
    /// are freed.
    fn forget(&self, chunk: u64) -> u64 {
        let Some((start, len)) = self.place(chunk) else { return 0 };
        let unsaid = self.sums.write_all_at(&[0; SUM_BYTES as usize], chunk * SUM_BYTES);
        if unsaid.and_then(|()| self.data.discard(start, len)).is_ok() {
            return len;
        }
        for (file, size) in [(self.data.file(), self.data.len()), (&self.sums, self.sums_len())] {
            let _ = file.set_len(0).and_then(|()| file.set_len(size));
        }
        u64::MAX
    }

    fn sums_len(&self) -> u64 {
        self.data.len().div_ceil(self.chunk_bytes) * SUM_BYTES
    }

    fn place(&self, chunk: u64) -> Option<(u64, u64)> {
        let start = chunk.checked_mul(self.chunk_bytes)?;
        Some((start, self.chunk_bytes.min(self.data.len().checked_sub(start)?)))
    }

    /// Returns the stored checksum of a chunk; 0 if the chunk is not stored.
    fn sum(&self, chunk: u64) -> u64 {
        let mut sum = [0; SUM_BYTES as usize];
        match self.sums.read_exact_at(&mut sum, chunk * SUM_BYTES) {
            Ok(()) => u64::from_le_bytes(sum),
            Err(_) => 0,
        }
    }
}

/// Returns the checksum of a chunk's contents and number; never 0.
fn sum_of(chunk: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, chunk).max(1)
}

/// Checks whether the directory belongs to the image, and updates its time of last use. A new directory becomes that
/// image's.
fn is_about(directory: &Path, about: &str) -> io::Result<bool> {
    let path = directory.join(ABOUT);
    match fs::read(&path) {
        Ok(found) if found == about.as_bytes() => {
            let now = SystemTime::now();
            // Another process may have removed the file, which is harmless.
            let _ = File::options().write(true).open(&path).and_then(|file| file.set_modified(now));
            Ok(true)
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let new = directory.join(format!("{ABOUT}.{}", std::process::id()));
            fs::write(&new, about)?;
            fs::rename(&new, &path)?;
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

fn open_sized(path: &Path, len: u64) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.len() != len {
        file.set_len(len)?;
    }
    Ok(file)
}
