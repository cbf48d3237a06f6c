//! What the cache has of one image.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use blockdev::{BlockDevice, FileAt, FileDevice};
use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

use super::{DiskCache, make_private};

/// What its file is called that says which image it is.
pub(super) const ABOUT: &str = "about";

/// Bytes of a checksum.
const SUM_BYTES: u64 = 8;

/// Checksums that are looked at together while room is made.
const SUMS_AT_ONCE: u64 = 4096;

/// The chunks of one image on disk.
pub struct Cached {
    cache: Arc<DiskCache>,
    pub(super) directory: PathBuf,
    data: FileDevice,
    sums: File,
    chunk_bytes: u64,
    /// The chunk that goes next when there is no room.
    hand: AtomicU64,
}

impl Cached {
    /// `None` if the directory is another image's.
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

    /// Whether a chunk is there, as far as can be told without reading it.
    #[must_use]
    pub fn has(&self, chunk: u64) -> bool {
        self.sum(chunk) != 0
    }

    /// A chunk, if it is there and whole.
    #[must_use]
    pub fn get(&self, chunk: u64) -> Option<Bytes> {
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

    /// Keeps a chunk, if that is possible.
    pub fn put(&self, chunk: u64, bytes: &[u8]) {
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

    /// Gives up chunks until so many bytes are free, or none is left.
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

    /// Gives back the storage of a chunk, and returns how much. A host that cannot do that of a part of a file does it of
    /// all.
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

    /// The checksum that a chunk should have; 0 if it is not there.
    fn sum(&self, chunk: u64) -> u64 {
        let mut sum = [0; SUM_BYTES as usize];
        match self.sums.read_exact_at(&mut sum, chunk * SUM_BYTES) {
            Ok(()) => u64::from_le_bytes(sum),
            Err(_) => 0,
        }
    }
}

/// Of the chunk and its place; never 0.
fn sum_of(chunk: u64, bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, chunk).max(1)
}

/// Whether the directory is of that image, which is what a new one says from now on, and since when it is in use.
fn is_about(directory: &Path, about: &str) -> io::Result<bool> {
    let path = directory.join(ABOUT);
    match fs::read(&path) {
        Ok(found) if found == about.as_bytes() => {
            let now = SystemTime::now();
            // Another process may have removed it meanwhile.
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
