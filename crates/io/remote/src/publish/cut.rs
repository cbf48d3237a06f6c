//! Cuts an image into aligned chunks of one size, named by their digests. Chunks of zeros are not stored.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use disk::{BlockDevice, is_zero};

use crate::holes::next_data;
use crate::publish::digest::Digest;
use crate::publish::error::Error;

/// Number of chunks that a thread takes at a time.
const BATCH: u64 = 64;

/// Returns numbers and digests of all chunks that are not zeros, in order. `progress` receives the number of bytes
/// processed so far and is called by any thread.
pub(crate) fn cut(
    device: &dyn BlockDevice,
    chunk_bytes: u32,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<(u32, Digest)>, Error> {
    let cutter = Cutter {
        device,
        chunk_bytes: chunk_bytes.into(),
        chunks: device.len().div_ceil(chunk_bytes.into()),
        next: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        passed: AtomicU64::new(0),
        progress,
    };
    let mut found = thread::scope(|scope| {
        // Spawning may fail for lack of resources. The current thread works too, so fewer threads are enough.
        let start = |_| thread::Builder::new().spawn_scoped(scope, || cutter.work()).ok();
        let threads: Vec<_> = (1..threads.clamp(1, 256)).map_while(start).collect();
        let mut found = cutter.work()?;
        for thread in threads {
            found.append(&mut thread.join().expect("a thread that cuts does not panic")?);
        }
        Ok(found)
    })?;
    found.sort_unstable_by_key(|(number, _)| *number);
    Ok(found)
}

/// Reads one chunk of the image into `buffer`.
pub(crate) fn read_chunk(
    device: &dyn BlockDevice,
    chunk_bytes: u32,
    number: u32,
    buffer: &mut Vec<u8>,
) -> Result<(), Error> {
    let offset = u64::from(number) * u64::from(chunk_bytes);
    let len = (device.len() - offset).min(chunk_bytes.into()) as usize;
    buffer.resize(len, 0);
    device.read_at(offset, buffer).map_err(|source| Error::Image { offset, source })
}

struct Cutter<'a> {
    device: &'a dyn BlockDevice,
    chunk_bytes: u64,
    chunks: u64,
    /// Number of the next unclaimed chunk.
    next: AtomicU64,
    failed: AtomicBool,
    passed: AtomicU64,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl Cutter<'_> {
    /// Processes batches until none is left or a batch fails.
    fn work(&self) -> Result<Vec<(u32, Digest)>, Error> {
        let (mut found, mut buffer) = (Vec::new(), Vec::new());
        while !self.failed.load(Ordering::Relaxed) {
            let start = self.next.fetch_add(BATCH, Ordering::Relaxed);
            if start >= self.chunks {
                break;
            }
            let batch = start..(start + BATCH).min(self.chunks);
            let bytes = (batch.end - batch.start) * self.chunk_bytes;
            if let Err(error) = self.batch(batch, &mut buffer, &mut found) {
                self.failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
            let passed = self.passed.fetch_add(bytes, Ordering::Relaxed) + bytes;
            (self.progress)(passed.min(self.device.len()));
        }
        Ok(found)
    }

    fn batch(
        &self,
        batch: Range<u64>,
        buffer: &mut Vec<u8>,
        found: &mut Vec<(u32, Digest)>,
    ) -> Result<(), Error> {
        let mut number = batch.start;
        loop {
            if number < batch.end {
                number = next_data(self.device, number * self.chunk_bytes)
                    .max(number * self.chunk_bytes)
                    / self.chunk_bytes;
            }
            if number >= batch.end {
                return Ok(());
            }
            // Chunk numbers fit into 32 bits: the manifest's sizes were checked.
            read_chunk(self.device, self.chunk_bytes as u32, number as u32, buffer)?;
            if !is_zero(buffer) {
                found.push((number as u32, Digest::of(buffer)));
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use disk::{FileAt, FileDevice, MemoryDevice};

    use super::*;

    fn sample(file: &File) -> Vec<u8> {
        let mut bytes = vec![0; (1 << 20) + 100];
        bytes[5000] = 1;
        bytes[600_000..700_000].fill(2);
        *bytes.last_mut().unwrap() = 3;
        file.set_len(bytes.len() as u64).unwrap();
        for range in [4096..8192, 600_000..700_000, (1 << 20)..bytes.len()] {
            file.write_all_at(&bytes[range.clone()], range.start as u64).unwrap();
        }
        bytes
    }

    #[test]
    fn holes_and_threads_change_nothing() {
        let file = tempfile::tempfile().unwrap();
        let bytes = sample(&file);
        let device = FileDevice::new(file).unwrap();
        let memory = MemoryDevice::new(bytes.len() as u64);
        disk::BlockDevice::write_at(&memory, 0, &bytes).unwrap();
        let expected: Vec<_> = bytes
            .chunks(4096)
            .enumerate()
            .filter(|(_, chunk)| !is_zero(chunk))
            .map(|(number, chunk)| (number as u32, Digest::of(chunk)))
            .collect();
        assert_eq!(expected.len(), 27);
        for threads in [1, 3] {
            assert!(cut(&device, 4096, threads, &|_| ()).unwrap() == expected);
            assert!(cut(&memory, 4096, threads, &|_| ()).unwrap() == expected);
        }
    }
}
