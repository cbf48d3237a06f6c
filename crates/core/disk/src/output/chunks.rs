//! Sequential processing of an image while other threads read ahead.

use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{self, Scope};

use crate::output::raw::{CHUNK_BYTES, write_sparse};
use crate::output::{Error, Raw};

/// Number of chunks that a reader may be ahead of the caller.
const AHEAD: usize = 4;

/// A chunk that was read.
struct Chunk {
    at: u64,
    bytes: Vec<u8>,
    has_data: bool,
}

/// One reading thread. It reads every n-th chunk, so the caller knows the source of the next one.
struct Reader {
    chunks: Receiver<Result<Chunk, Error>>,
    /// Buffers to use again.
    buffers: Sender<Vec<u8>>,
}

/// Calls `each` with the offset and bytes of every chunk of an image with data, in order. Other threads read ahead
/// ([`Raw::readers`]). Offsets are multiples of [`CHUNK_BYTES`](crate::output::CHUNK_BYTES), and only the last chunk is shorter.
/// Calls `progress` with the number of image bytes processed.
///
/// # Errors
/// If the image cannot be read; those of `each`.
pub fn for_each<E: From<Error>>(
    raw: &Raw<'_>,
    progress: &dyn Fn(u64),
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let readers = raw.reader_count();
    thread::scope(|scope| {
        let started: Option<Vec<_>> =
            (0..readers).map(|nth| start(scope, raw, nth, readers)).collect();
        let Some(started) = started else {
            // The system provides no thread, so this one reads.
            return alone(raw, progress, &mut each);
        };
        for reader in started.iter().cycle() {
            // A reader ends at the end of the image, or after an error, which is its last message. All readers before
            // it have delivered their chunks then.
            let Ok(chunk) = reader.chunks.recv() else { break };
            let Chunk { at, bytes, has_data } = chunk?;
            if has_data {
                each(at, &bytes)?;
            }
            progress(at + bytes.len() as u64);
            // The reader may have ended.
            let _ = reader.buffers.send(bytes);
        }
        progress(raw.len());
        Ok(())
    })
}

/// Writes a raw copy of an image, with holes.
pub(crate) fn copy_to(raw: &Raw<'_>, out: &File, progress: &dyn Fn(u64)) -> Result<(), Error> {
    out.set_len(raw.len()).map_err(Error::Write)?;
    for_each(raw, progress, |at, bytes| write_sparse(out, at, bytes).map_err(Error::Write))
}

fn start<'s>(
    scope: &'s Scope<'s, '_>,
    raw: &'s Raw<'_>,
    nth: usize,
    readers: usize,
) -> Option<Reader> {
    let (sender, chunks) = sync_channel(AHEAD);
    let (buffers, empty) = channel();
    let work = move || read(raw, nth, readers, &sender, &empty);
    thread::Builder::new().spawn_scoped(scope, work).ok()?;
    Some(Reader { chunks, buffers })
}

/// Reads chunks until the receiver is dropped.
fn read(
    raw: &Raw<'_>,
    nth: usize,
    readers: usize,
    chunks: &SyncSender<Result<Chunk, Error>>,
    empty: &Receiver<Vec<u8>>,
) {
    let (mut at, mut number) = (0, 0);
    loop {
        let found = match raw.next_chunk(at) {
            Ok(Some(found)) => found,
            Ok(None) => return,
            Err(error) => {
                let _ = chunks.send(Err(error));
                return;
            }
        };
        if number % readers == nth {
            let chunk = read_chunk(raw, found, empty.try_recv().unwrap_or_default());
            let is_last = chunk.is_err();
            if chunks.send(chunk).is_err() || is_last {
                return;
            }
        }
        number += 1;
        at = found + CHUNK_BYTES;
    }
}

fn read_chunk(raw: &Raw<'_>, at: u64, mut bytes: Vec<u8>) -> Result<Chunk, Error> {
    bytes.resize(CHUNK_BYTES.min(raw.len() - at) as usize, 0);
    let has_data = raw.read(at, &mut bytes)?;
    Ok(Chunk { at, bytes, has_data })
}

fn alone<E: From<Error>>(
    raw: &Raw<'_>,
    progress: &dyn Fn(u64),
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (mut next, mut buffer) = (0, Vec::new());
    while let Some(at) = raw.next_chunk(next)? {
        let chunk = read_chunk(raw, at, buffer)?;
        if chunk.has_data {
            each(at, &chunk.bytes)?;
        }
        next = at + CHUNK_BYTES;
        progress(at + chunk.bytes.len() as u64);
        buffer = chunk.bytes;
    }
    progress(raw.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::raw::tests::sample;
    use crate::{BlockDevice, MemoryDevice};

    fn collected(raw: Raw<'_>, readers: usize) -> Vec<(u64, Vec<u8>)> {
        let mut chunks = Vec::new();
        let each = |at, bytes: &[u8]| {
            chunks.push((at, bytes.to_vec()));
            Ok::<(), Error>(())
        };
        for_each(&raw.readers(readers), &|_| (), each).unwrap();
        chunks
    }

    #[test]
    fn a_copy_is_equal_except_for_free_space() {
        let (file, mut bytes) = sample();
        let raw = Raw::new(&file, bytes.len() as u64, vec![0..4096, 4096..8192]);
        let copy = tempfile::tempfile().unwrap();
        copy_to(&raw, &copy, &|_| ()).unwrap();
        let mut copied = vec![1; bytes.len()];
        crate::FileAt::read_exact_at(&copy, &mut copied, 0).unwrap();
        bytes[..8192].fill(0);
        assert!(copied == bytes);
    }

    #[test]
    fn any_number_of_readers_delivers_the_same_chunks() {
        let (file, bytes) = sample();
        let raw = || Raw::new(&file, bytes.len() as u64, Vec::new());
        let one = collected(raw(), 1);
        assert!(one.is_sorted_by_key(|(at, _)| *at) && one.len() > 2);
        for (at, chunk) in &one {
            assert!(bytes[*at as usize..][..chunk.len()] == chunk[..]);
        }
        let mut sequential = Vec::new();
        let mut each = |at, bytes: &[u8]| {
            sequential.push((at, bytes.to_vec()));
            Ok::<(), Error>(())
        };
        alone(&raw(), &|_| (), &mut each).unwrap();
        assert!(sequential == one);
        for readers in [2, 3, 16, 99] {
            assert!(collected(raw(), readers) == one, "{readers} readers");
        }
    }

    #[test]
    fn a_device_is_read_without_its_free_space() {
        let (file, bytes) = sample();
        drop(file);
        let device = MemoryDevice::new(bytes.len() as u64);
        device.write_at(0, &bytes).unwrap();
        let free: Vec<_> = std::iter::once(CHUNK_BYTES..3 * CHUNK_BYTES).collect();
        let chunks = collected(Raw::of_device(&device, free), 2);
        let places: Vec<u64> = chunks.iter().map(|(at, _)| at / CHUNK_BYTES).collect();
        assert_eq!(places, [0, 3, 4, 5]);
        assert!(chunks[3].1 == bytes[5 << 20..]);
        // Free space ends with the device, whatever its length.
        let device = MemoryDevice::new(2 * CHUNK_BYTES + 9 * 1024);
        let free: Vec<_> = std::iter::once(CHUNK_BYTES..3 * CHUNK_BYTES).collect();
        let places: Vec<u64> =
            collected(Raw::of_device(&device, free), 1).into_iter().map(|(at, _)| at).collect();
        assert_eq!(places, [0]);
    }

    #[test]
    fn errors_of_readers_and_of_the_caller_end_the_work() {
        let device = MemoryDevice::new(8 << 20);
        let raw = Raw::of_device(&device, Vec::new()).readers(3);
        let mut count = 0;
        let each = |_, _: &[u8]| {
            count += 1;
            if count == 3 {
                Err(Error::Write(std::io::ErrorKind::StorageFull.into()))
            } else {
                Ok(())
            }
        };
        let error = for_each(&raw, &|_| (), each).unwrap_err();
        assert!(matches!(error, Error::Write(_)) && count == 3, "{error}");
        let short = tempfile::tempfile().unwrap();
        short.set_len(3 << 20).unwrap();
        crate::FileAt::write_all_at(&short, &[1; 4096], 2 << 20).unwrap();
        let file = crate::FileDevice::new(short.try_clone().unwrap()).unwrap();
        short.set_len((2 << 20) + 4096).unwrap();
        let each = |_, _: &[u8]| Ok::<(), Error>(());
        let error =
            for_each(&Raw::of_device(&file, Vec::new()).readers(3), &|_| (), each).unwrap_err();
        assert!(matches!(error, Error::Read(_)), "{error}");
    }
}
