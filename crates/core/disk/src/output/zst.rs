//! zstd with a seek table: independently compressed frames of 1 MiB of the image each, followed by a skippable frame
//! with their sizes. Every zstd program reads the file as one stream; programs that support the table can read at any
//! offset. Each frame ends with a checksum of its contents.

use std::fs::File;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use vfs::hint::Setting;

use crate::{FileAt, is_zero};
use structured_zstd::encoding::{CompressionLevel, compress_slice_to_vec};
use xxhash_rust::xxh64::xxh64;

use crate::output::raw::{CHUNK_BYTES as FRAME_BYTES, ExtentKind};
use crate::output::{Error, OutputFormat, Raw};

/// Default level of `zstd`.
const LEVEL: i32 = 3;

/// Number of frames that a thread may be ahead of the writer.
const AHEAD: usize = 4;

/// Size of a frame's magic number in bytes.
const MAGIC_BYTES: usize = 4;

/// Flag in the frame header's descriptor: a checksum follows the blocks.
const CHECKSUM_FLAG: u8 = 4;

const SKIPPABLE_MAGIC: u32 = 0x184d_2a5e;
const SEEKABLE_MAGIC: u32 = 0x8f92_eab1;

/// Maximum number of frames in a seek table.
const FRAMES_MAX: u64 = 0x800_0000;

pub(crate) fn check(len: u64) -> Result<(), Error> {
    if len.div_ceil(FRAME_BYTES) > FRAMES_MAX {
        let why = format!(
            "its maximum is {FRAMES_MAX} frames of 1 MiB; make the image smaller with {}, or \
             use raw",
            Setting::SIZE
        );
        return Err(Error::Unfit { format: OutputFormat::Zstd.name(), why });
    }
    Ok(())
}

/// Frame `n` is compressed by thread `n % threads`, so the writer knows the source of the next frame.
pub(crate) fn write(
    raw: &Raw<'_>,
    out: &File,
    threads: usize,
    progress: &dyn Fn(u64),
) -> Result<(), Error> {
    let frames = raw.len().div_ceil(FRAME_BYTES);
    let threads = threads.clamp(1, 256).min(frames.max(1) as usize);
    thread::scope(|scope| {
        let start = |first: usize| {
            let (sender, receiver) = sync_channel(AHEAD);
            let numbers = (first as u64..frames).step_by(threads);
            let work = move || compress(raw, numbers, &sender);
            // If the system provides no thread, the writing thread compresses.
            thread::Builder::new().spawn_scoped(scope, work).is_ok().then_some(receiver)
        };
        let compressors: Vec<_> = (0..threads).map(start).collect();
        collect(raw, frames, &compressors, out, progress)
    })
}

type CompressedFrame = Result<Vec<u8>, Error>;

fn frame_len(raw: &Raw<'_>, number: u64) -> u64 {
    FRAME_BYTES.min(raw.len() - number * FRAME_BYTES)
}

/// Compresses frames until the receiver is dropped.
fn compress(
    raw: &Raw<'_>,
    numbers: impl Iterator<Item = u64>,
    frames: &SyncSender<CompressedFrame>,
) {
    let mut buffer = Vec::new();
    // Most frames of zeros have the same length, so the compressed frame is reused.
    let mut zeros: Option<Vec<u8>> = None;
    for number in numbers {
        let (at, len) = (number * FRAME_BYTES, frame_len(raw, number));
        let frame = read(raw, at, len, &mut buffer).map(|has_data| {
            if has_data || len < FRAME_BYTES {
                compressed(&buffer)
            } else {
                zeros.get_or_insert_with(|| compressed(&buffer)).clone()
            }
        });
        let is_last = frame.is_err();
        if frames.send(frame).is_err() || is_last {
            return;
        }
    }
}

/// Reads the bytes of a frame. Returns false if they are zeros.
fn read(raw: &Raw<'_>, at: u64, len: u64, buffer: &mut Vec<u8>) -> Result<bool, Error> {
    let piece = raw.piece_at(at)?;
    if piece.kind != ExtentKind::Data && piece.end >= at + len {
        buffer.clear();
        buffer.resize(len as usize, 0);
        return Ok(false);
    }
    buffer.resize(len as usize, 0);
    Ok(raw.read(at, buffer)? && !is_zero(buffer))
}

/// Returns a frame with a checksum. Frames are independent of the earlier work of a thread.
fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = compress_slice_to_vec(bytes, CompressionLevel::Level(LEVEL));
    // The checksum flag is in the byte after the magic number (RFC 8878, 3.1.1.1.1).
    frame[MAGIC_BYTES] |= CHECKSUM_FLAG;
    frame.extend((xxh64(bytes, 0) as u32).to_le_bytes());
    frame
}

/// Writes the frames in order, and the table.
fn collect(
    raw: &Raw<'_>,
    frames: u64,
    compressors: &[Option<Receiver<CompressedFrame>>],
    out: &File,
    progress: &dyn Fn(u64),
) -> Result<(), Error> {
    let mut table = SeekTable::default();
    let mut end = 0;
    for number in 0..frames {
        let frame = match &compressors[number as usize % compressors.len()] {
            // A thread ends early only after an error, which is its last message.
            Some(receiver) => {
                receiver.recv().map_err(|e| Error::Read(std::io::Error::other(e)))??
            }
            None => {
                let (sender, receiver) = sync_channel(1);
                compress(raw, std::iter::once(number), &sender);
                receiver.recv().map_err(|e| Error::Read(std::io::Error::other(e)))??
            }
        };
        out.write_all_at(&frame, end).map_err(Error::Write)?;
        let len = frame_len(raw, number);
        table.add(frame.len() as u32, len as u32);
        end += frame.len() as u64;
        progress(number * FRAME_BYTES + len);
    }
    out.write_all_at(&table.finish(), end).map_err(Error::Write)
}

/// The seek table: a skippable frame with two sizes per frame, and a footer.
#[derive(Default)]
struct SeekTable {
    entries: Vec<u8>,
    frames: u32,
}

impl SeekTable {
    fn add(&mut self, compressed: u32, decompressed: u32) {
        self.entries.extend(compressed.to_le_bytes());
        self.entries.extend(decompressed.to_le_bytes());
        self.frames += 1;
    }

    fn finish(self) -> Vec<u8> {
        let mut footer = self.frames.to_le_bytes().to_vec();
        // No checksums in the table: the frames contain them.
        footer.push(0);
        footer.extend(SEEKABLE_MAGIC.to_le_bytes());
        let len = (self.entries.len() + footer.len()) as u32;
        [&SKIPPABLE_MAGIC.to_le_bytes()[..], &len.to_le_bytes(), &self.entries, &footer].concat()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::output::raw::tests::sample;

    fn packed(threads: usize) -> (Vec<u8>, Vec<u8>) {
        let (file, bytes) = sample();
        let out = tempfile::tempfile().unwrap();
        let raw = Raw::new(&file, bytes.len() as u64, Vec::new());
        write(&raw, &out, threads, &|_| ()).unwrap();
        let mut all = vec![0; out.metadata().unwrap().len() as usize];
        out.read_exact_at(&mut all, 0).unwrap();
        (all, bytes)
    }

    fn unpacked(frame: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut decoder = structured_zstd::decoding::StreamingDecoder::new(frame);
        decoder.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn every_frame_is_found_by_the_table() {
        let (all, bytes) = packed(3);
        let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        let end = all.len();
        assert_eq!((word(end - 4), all[end - 5]), (SEEKABLE_MAGIC, 0));
        let frames = word(end - 9) as usize;
        let start = end - 9 - 8 * frames;
        assert_eq!((word(start - 8), word(start - 4) as usize), (SKIPPABLE_MAGIC, end - start));
        let (mut at, mut place) = (0, 0);
        for entry in (0..frames).map(|number| start + 8 * number) {
            let (stored, len) = (word(entry) as usize, word(entry + 4) as usize);
            assert!(unpacked(&all[at..at + stored]) == bytes[place..place + len]);
            at += stored;
            place += len;
        }
        assert_eq!((at, place), (start - 8, bytes.len()));
        assert!(at < 420_000, "{at} bytes");
    }

    #[test]
    fn threads_change_nothing() {
        let one = packed(1).0;
        assert!(packed(2).0 == one && packed(16).0 == one);
    }

    #[test]
    fn an_image_with_too_many_frames_is_refused() {
        assert!(check(1 << 46).is_ok());
        assert!(check((1 << 47) + 1).unwrap_err().to_string().contains("frames of 1 MiB"));
    }
}
