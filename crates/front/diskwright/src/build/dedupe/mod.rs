//! Deduplication: files or blocks with the same bytes share blocks.
//!
//! Candidates are found by size and by a fast, non-cryptographic hash (XXH3) and confirmed by comparing the bytes.
//! Earlier files are read from their sources, because they may not be copied yet; streamed files are read from the
//! image. The thread that creates the files looks up each file before it allocates blocks, so only the order of the
//! source determines the sharing.
//!
//! Memory: the source of each file, [`files::ENTRY_BYTES`] for each file whose size is not unique, and with
//! [`Dedupe::Blocks`] [`blocks::ENTRY_BYTES`] for each distinct block. For 4 KiB blocks that is more than 1 % of the
//! contents, in tables that may be half empty.

pub(crate) mod blocks;
mod files;
mod held;

use import::{ContentFile, DataRun, Detached};
use vfs::Ino;

use super::{BuildError, Dedupe, identity};

pub(super) use files::WholeFile;

use blocks::DistinctBlocks;
use files::{FileProperties, Files};
use held::{Held, New};

/// Read size in bytes; a multiple of every block size.
const READ_BYTES: usize = 256 << 10;

/// File system with shared blocks.
pub(super) trait ShareBlocks {
    /// Returns the block size in bytes.
    fn block_size(&self) -> u64;

    /// Shares blocks of one file with another one.
    fn share(&self, from: (Ino, u64), to: (Ino, u64), len: u64) -> vfs::Result<()>;

    /// Reads from a file into a buffer. Returns fewer bytes only at the end of the file.
    fn read_back(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> vfs::Result<usize>;
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilePart {
    /// Extent of the part.
    pub(crate) run: DataRun,
    /// Inode and offset of the same bytes, if any.
    pub(crate) same: Option<(Ino, u64)>,
}

/// Result of a lookup.
#[derive(Default)]
pub(super) struct Looked {
    /// All data of the file, in order.
    pub(super) parts: Vec<FilePart>,
    /// Contribution of the shared parts to the checksum of all contents.
    pub(super) contents: u64,
}

/// All contents so far.
pub(super) struct KnownContents<'a> {
    device: &'a dyn ShareBlocks,
    unit: Dedupe,
    held: Held<'a>,
    files: Files,
    blocks: DistinctBlocks,
    buffer: Vec<u8>,
    shared_bytes: u64,
}

impl<'a> KnownContents<'a> {
    pub(super) fn new(device: &'a dyn ShareBlocks, unit: Dedupe) -> Self {
        Self {
            device,
            unit,
            held: Held::new(device),
            files: Files::default(),
            blocks: DistinctBlocks::default(),
            buffer: vec![0; READ_BYTES],
            shared_bytes: 0,
        }
    }

    /// Returns the content bytes that needed no blocks of their own.
    ///
    /// # Errors
    /// If a file used for comparison changed meanwhile.
    pub(super) fn finish(mut self) -> Result<u64, BuildError> {
        self.held.close()?;
        Ok(self.shared_bytes)
    }

    /// Finds the parts of a file that already exist, and records the rest.
    pub(super) fn look(
        &mut self,
        ino: Ino,
        size: u64,
        runs: &[DataRun],
        body: &Detached,
    ) -> Result<Looked, BuildError> {
        self.held.add(ino, size, body);
        match self.unit {
            Dedupe::Files => self.look_at_file(ino, size, runs, body),
            Dedupe::Blocks => self.look_at_blocks(ino, size, runs, &body.open()?),
        }
    }

    /// Shares the blocks of `part` with an existing copy, if there is one. `ino` must already have separate blocks
    /// for all other data.
    pub(super) fn share(&mut self, ino: Ino, part: &FilePart) -> Result<(), BuildError> {
        match part.same {
            Some(same) => Ok(self.device.share(same, (ino, part.run.offset), part.run.len)?),
            None => Ok(()),
        }
    }

    fn look_at_file(
        &mut self,
        ino: Ino,
        size: u64,
        runs: &[DataRun],
        body: &Detached,
    ) -> Result<Looked, BuildError> {
        let unlike = || runs.iter().map(|run| FilePart { run: *run, same: None }).collect();
        let shape = FileProperties::of(size, runs);
        // A file of a unique shape is not read.
        if self.files.is_first(&shape, ino) {
            return Ok(Looked { parts: unlike(), contents: 0 });
        }
        let file = body.open()?;
        let (held, buffer) = (&mut self.held, &mut self.buffer);
        let sum = |buffer: &mut [u8]| {
            let mut whole = WholeFile::new(size);
            for run in runs {
                each_piece(&file, *run, buffer, |_, bytes| {
                    whole.add(bytes);
                    Ok(())
                })?;
            }
            Ok(whole.sum())
        };
        let same = |other, buffer: &mut [u8]| held.same(other, runs, &New::Source(&file), buffer);
        let found = self.files.find(&shape, ino, same, sum, buffer)?;
        file.finish()?;
        Ok(match found {
            Some((other, contents)) => {
                Looked { parts: vec![self.whole(size, runs, other)], contents }
            }
            None => Looked { parts: unlike(), contents: 0 },
        })
    }

    fn look_at_blocks(
        &mut self,
        ino: Ino,
        size: u64,
        runs: &[DataRun],
        file: &ContentFile,
    ) -> Result<Looked, BuildError> {
        let mut looked = Looked { parts: Vec::new(), contents: 0 };
        let mut buffer = std::mem::take(&mut self.buffer);
        for run in runs {
            each_piece(file, *run, &mut buffer, |offset, bytes| {
                self.split(ino, size, (offset, bytes), &mut looked)
            })?;
        }
        self.buffer = buffer;
        Ok(looked)
    }

    /// Returns whether deduplication is by file.
    pub(super) fn is_by_file(&self) -> bool {
        self.unit == Dedupe::Files
    }

    /// Returns a part for the whole of a streamed file if its contents already exist. Otherwise records the file.
    pub(super) fn written(
        &mut self,
        ino: Ino,
        runs: &[DataRun],
        file: WholeFile,
    ) -> Result<Option<FilePart>, BuildError> {
        let (size, shape) = (file.size(), FileProperties::of(file.size(), runs));
        if self.files.is_first(&shape, ino) {
            return Ok(None);
        }
        let (held, sum) = (&mut self.held, file.sum());
        let same = |other, buffer: &mut [u8]| held.same(other, runs, &New::Image(ino), buffer);
        let found = self.files.find(&shape, ino, same, |_| Ok(sum), &mut self.buffer)?;
        Ok(found.map(|(other, _)| self.whole(size, runs, other)))
    }

    /// Returns a part for the whole file with its holes, because runs may end within blocks.
    fn whole(&mut self, size: u64, runs: &[DataRun], other: Ino) -> FilePart {
        self.shared_bytes += runs.iter().map(|run| run.len).sum::<u64>();
        FilePart { run: DataRun { offset: 0, len: size }, same: Some((other, 0)) }
    }

    /// Appends the parts for some bytes of a file at an offset. For a streamed file, all earlier bytes are in the
    /// image.
    pub(super) fn split(
        &mut self,
        ino: Ino,
        size: u64,
        (offset, bytes): (u64, &[u8]),
        looked: &mut Looked,
    ) -> Result<(), BuildError> {
        let block_size = self.device.block_size();
        for (at, block) in blocks::blocks_in(offset, bytes, block_size) {
            let len = block.len() as u64;
            let is_whole = at.is_multiple_of(block_size) && (len == block_size || at + len == size);
            let mut same = is_whole.then(|| self.blocks.known_or_new(block, (ino, at))).flatten();
            if let Some((other, start)) = same {
                let is_same = match start.checked_sub(offset).filter(|_| other == ino) {
                    Some(start) => bytes[start as usize..].starts_with(block),
                    None => self.held.has((other, start), block)?,
                };
                same = same.filter(|_| is_same);
            }
            if same.is_some() {
                self.shared_bytes += len;
                looked.contents = looked.contents.wrapping_add(identity::contents_term(at, block));
            }
            blocks::add(&mut looked.parts, at, len, same);
        }
        Ok(())
    }
}

/// Reads a run in pieces that end at block boundaries.
fn each_piece(
    file: &ContentFile,
    run: DataRun,
    buffer: &mut [u8],
    mut each: impl FnMut(u64, &[u8]) -> Result<(), BuildError>,
) -> Result<(), BuildError> {
    let (mut at, end) = (run.offset, run.offset + run.len);
    while at < end {
        let room = buffer.len() as u64 - at % buffer.len() as u64;
        let piece = &mut buffer[..room.min(end - at) as usize];
        file.read_at(at, piece)?;
        each(at, piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use import::{Body, Content, ReadContent, SourceError};
    use parking_lot::Mutex;

    use super::*;

    const BLOCK: u64 = 4096;

    #[derive(Debug)]
    struct Bytes(Vec<u8>);

    impl ReadContent for Bytes {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
            buf.copy_from_slice(&self.0[offset as usize..][..buf.len()]);
            Ok(())
        }
    }

    /// Contents of streamed files.
    #[derive(Default)]
    struct StreamedFiles(Mutex<HashMap<Ino, Vec<u8>>>);

    impl ShareBlocks for StreamedFiles {
        fn block_size(&self) -> u64 {
            BLOCK
        }

        fn share(&self, _: (Ino, u64), _: (Ino, u64), _: u64) -> vfs::Result<()> {
            Ok(())
        }

        fn read_back(&self, ino: Ino, offset: u64, buffer: &mut [u8]) -> vfs::Result<usize> {
            let files = self.0.lock();
            let rest = files[&ino].get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buffer.len());
            buffer[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        }
    }

    /// Returns files of a few blocks, many of them equal.
    fn files(random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
        let file = |random: &mut fastrand::Rng| {
            let mut bytes = Vec::new();
            for _ in 0..random.usize(..6) {
                bytes.extend_from_slice(&[random.u8(1..4); BLOCK as usize]);
            }
            let tail = random.u8(1..3);
            bytes.extend_from_slice(&[tail, 9, 8][..random.usize(1..4)]);
            bytes
        };
        (0..200).map(|_| file(random)).collect()
    }

    /// Returns all parts of a file, either looked up as a whole or streamed in pieces of three blocks.
    fn parts(
        known: &mut KnownContents<'_>,
        image: &StreamedFiles,
        ino: Ino,
        bytes: &[u8],
        is_stream: bool,
    ) -> Vec<FilePart> {
        let size = bytes.len() as u64;
        let runs = [DataRun { offset: 0, len: size }];
        if !is_stream {
            let content = Content::elsewhere(size, None, Arc::new(Bytes(bytes.to_vec())));
            let Body::Detached(body) = content.into_body() else { panic!("no contents") };
            return known.look(ino, size, &runs, &body).unwrap().parts;
        }
        if known.is_by_file() {
            image.0.lock().insert(ino, bytes.to_vec());
            let mut whole = WholeFile::new(size);
            bytes.chunks(5000).for_each(|piece| whole.add(piece));
            return known.written(ino, &runs, whole).unwrap().into_iter().collect();
        }
        let (mut looked, mut offset) = (Looked::default(), 0);
        image.0.lock().insert(ino, Vec::new());
        for piece in bytes.chunks(3 * BLOCK as usize) {
            known.split(ino, size, (offset, piece), &mut looked).unwrap();
            if let Some(file) = image.0.lock().get_mut(&ino) {
                file.extend_from_slice(piece);
            }
            offset += piece.len() as u64;
        }
        looked.parts
    }

    #[test]
    fn all_equal_data_is_found_and_nothing_else() {
        let mut random = fastrand::Rng::with_seed(1);
        for (unit, in_order) in
            [Dedupe::Files, Dedupe::Blocks].map(|unit| [0, 1, 2].map(|n| (unit, n))).concat()
        {
            let (image, files) = (StreamedFiles::default(), files(&mut random));
            let mut known = KnownContents::new(&image, unit);
            let mut first = HashMap::new();
            let mut shared = 0;
            for (number, bytes) in files.iter().enumerate() {
                let ino = Ino(number as u64);
                // None, all, or some files are streamed.
                let is_stream = in_order == 1 || (in_order == 2 && random.bool());
                let found = parts(&mut known, &image, ino, bytes, is_stream);
                let len = if unit == Dedupe::Files { bytes.len() } else { BLOCK as usize };
                for (at, piece) in bytes.chunks(len).enumerate().map(|(n, piece)| (n * len, piece))
                {
                    let expected = first.get(piece).copied();
                    let at = at as u64;
                    let part = found.iter().find(|part| {
                        (part.run.offset..part.run.offset + part.run.len).contains(&at)
                    });
                    let same = part.and_then(|part| {
                        part.same.map(|(ino, start)| (ino, start + (at - part.run.offset)))
                    });
                    assert_eq!(same, expected, "{number} at {at}");
                    match expected {
                        Some(_) => shared += piece.len() as u64,
                        None => drop(first.insert(piece, (ino, at))),
                    }
                }
            }
            assert_eq!(known.finish().unwrap(), shared);
            assert!(shared > 0);
        }
    }
}
