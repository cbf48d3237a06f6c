//! Android sparse images, version 1.0: a header, and chunks of blocks of 4096 bytes. All numbers are little-endian.
//!
//! A chunk contains data, or a four-byte word that fills it, or it leaves the device unchanged ("don't care"). The last
//! kind is used for free space only: in a hole of a file, the old contents of the device would become readable.

use std::fs::File;
use vfs::hint::Setting;

use crate::FileAt;

use crate::output::raw::{CHUNK_BYTES, ExtentKind, UNIT_BYTES};
use crate::output::{Error, OutputFormat, Raw};

const MAGIC: u32 = 0xed26_ff3a;
const FILE_HEADER_BYTES: usize = 28;
const CHUNK_HEADER_BYTES: usize = 12;

const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;

/// Maximum number of data blocks in a chunk: the size in bytes is a 32-bit number, and readers map a chunk as a whole.
const RAW_BLOCKS_MAX: u32 = 64 << 8;

pub(crate) fn check(len: u64) -> Result<(), Error> {
    let unfit = |why| Error::Unfit { format: OutputFormat::Sparse.name(), why };
    if !len.is_multiple_of(UNIT_BYTES) {
        let why = format!(
            "{len} bytes are not a multiple of its block size of {UNIT_BYTES} bytes; choose such a \
             {}",
            Setting::SIZE
        );
        return Err(unfit(why));
    }
    if u32::try_from(len / UNIT_BYTES).is_err() {
        let why = format!(
            "its maximum is {} blocks of {UNIT_BYTES} bytes; make the image smaller with {}, \
             or use raw or zstd",
            u32::MAX,
            Setting::SIZE
        );
        return Err(unfit(why));
    }
    Ok(())
}

pub(crate) fn write(raw: &Raw<'_>, out: &File, progress: &dyn Fn(u64)) -> Result<(), Error> {
    let end = FILE_HEADER_BYTES as u64;
    let mut chunks = Chunks { out, end, chunks: 0, open: None };
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let mut at = 0;
    while at < raw.len() {
        let piece = raw.piece_at(at)?;
        match piece.kind {
            ExtentKind::Free => chunks.add(Content::DontCare, blocks(piece.end - at), &[])?,
            ExtentKind::Hole => chunks.add(Content::Fill([0; 4]), blocks(piece.end - at), &[])?,
            ExtentKind::Data => {
                let end = piece.end.min(at + CHUNK_BYTES);
                let bytes = &mut buffer[..(end - at) as usize];
                raw.read(at, bytes)?;
                chunks.add_data(bytes)?;
                at = end;
                progress(at);
                continue;
            }
        }
        at = piece.end;
        progress(at);
    }
    chunks.finish(blocks(raw.len()))
}

/// The number fits, because the length of the image was checked.
fn blocks(bytes: u64) -> u32 {
    (bytes / UNIT_BYTES) as u32
}

/// Contents of the blocks of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Data,
    Fill([u8; 4]),
    DontCare,
}

impl Content {
    fn of(block: &[u8]) -> Self {
        match block.first_chunk::<4>() {
            Some(word) if block.chunks_exact(4).all(|other| other == word) => Self::Fill(*word),
            _ => Self::Data,
        }
    }
}

/// Writes chunks. The last one stays open and can grow; its header is written when it is closed.
struct Chunks<'a> {
    out: &'a File,
    /// Offset of the next bytes of the open chunk, or of the next chunk.
    end: u64,
    chunks: u32,
    open: Option<OpenChunk>,
}

struct OpenChunk {
    content: Content,
    blocks: u32,
    /// Offset of its header.
    start: u64,
}

impl Chunks<'_> {
    fn add_data(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let unit = UNIT_BYTES as usize;
        let mut at = 0;
        while at < bytes.len() {
            let content = Content::of(&bytes[at..at + unit]);
            let mut end = at + unit;
            while end < bytes.len() && Content::of(&bytes[end..end + unit]) == content {
                end += unit;
            }
            let data = if content == Content::Data { &bytes[at..end] } else { &[] };
            self.add(content, blocks((end - at) as u64), data)?;
            at = end;
        }
        Ok(())
    }

    /// Adds blocks with the same contents. Data must not exceed the maximum of a chunk.
    fn add(&mut self, content: Content, blocks: u32, data: &[u8]) -> Result<(), Error> {
        let goes_on = self.open.as_ref().is_some_and(|open| {
            let has_room = content != Content::Data || open.blocks + blocks <= RAW_BLOCKS_MAX;
            open.content == content && has_room
        });
        if !goes_on {
            self.close()?;
            self.open = Some(OpenChunk { content, blocks: 0, start: self.end });
            self.end += CHUNK_HEADER_BYTES as u64;
        }
        if let Some(open) = &mut self.open {
            open.blocks += blocks;
        }
        self.out.write_all_at(data, self.end).map_err(Error::Write)?;
        self.end += data.len() as u64;
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let kind = match open.content {
            Content::Data => RAW,
            Content::DontCare => DONT_CARE,
            Content::Fill(word) => {
                self.out.write_all_at(&word, self.end).map_err(Error::Write)?;
                self.end += word.len() as u64;
                FILL
            }
        };
        let mut header = Vec::with_capacity(CHUNK_HEADER_BYTES);
        header.extend(u32::from(kind).to_le_bytes());
        header.extend(open.blocks.to_le_bytes());
        header.extend(((self.end - open.start) as u32).to_le_bytes());
        self.chunks += 1;
        self.out.write_all_at(&header, open.start).map_err(Error::Write)
    }

    /// Writes the file header with the number of chunks. The checksum is 0, as in other writers.
    fn finish(mut self, blocks: u32) -> Result<(), Error> {
        self.close()?;
        let mut header = Vec::with_capacity(FILE_HEADER_BYTES);
        header.extend(MAGIC.to_le_bytes());
        for half in [1, 0, FILE_HEADER_BYTES as u16, CHUNK_HEADER_BYTES as u16] {
            header.extend(half.to_le_bytes());
        }
        for word in [UNIT_BYTES as u32, blocks, self.chunks, 0] {
            header.extend(word.to_le_bytes());
        }
        self.out.write_all_at(&header, 0).map_err(Error::Write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::raw::tests::sample;

    /// Reads a sparse image according to the specification. Blocks left unchanged become 0xdd.
    fn unpack(file: &File) -> (Vec<u8>, Vec<u16>) {
        let mut all = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut all, 0).unwrap();
        let half = |at: usize| u16::from_le_bytes(all[at..at + 2].try_into().unwrap());
        let word = |at: usize| u32::from_le_bytes(all[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), half(4), half(6), half(8), half(10)), (MAGIC, 1, 0, 28, 12));
        assert_eq!((word(12), word(24)), (4096, 0));
        let (mut at, mut bytes, mut kinds) = (28, Vec::new(), Vec::new());
        for _ in 0..word(20) {
            let (kind, count) = (half(at), word(at + 4) as usize * 4096);
            let body = &all[at + 12..at + word(at + 8) as usize];
            match kind {
                RAW => bytes.extend_from_slice(body),
                FILL => bytes.extend(body.iter().copied().cycle().take(count)),
                DONT_CARE => bytes.resize(bytes.len() + count, 0xdd),
                _ => panic!("a chunk of kind {kind:x}"),
            }
            if kind != FILL {
                assert_eq!(body.len(), if kind == RAW { count } else { 0 });
            }
            kinds.push(kind);
            at += word(at + 8) as usize;
        }
        assert_eq!(at, all.len());
        assert_eq!(bytes.len(), word(16) as usize * 4096);
        (bytes, kinds)
    }

    #[test]
    fn only_free_space_is_left_alone() {
        let (file, mut bytes) = sample();
        let free = 3 << 20..(3 << 20) + 65_536_u64;
        let raw = Raw::new(&file, bytes.len() as u64, vec![free.clone()]);
        let out = tempfile::tempfile().unwrap();
        write(&raw, &out, &|_| ()).unwrap();
        let (unpacked, kinds) = unpack(&out);
        bytes[free.start as usize..free.end as usize].fill(0xdd);
        assert!(unpacked == bytes);
        assert_eq!(kinds.iter().filter(|kind| **kind == DONT_CARE).count(), 1);
        assert!(out.metadata().unwrap().len() < 500_000);
    }

    #[test]
    fn data_is_cut_where_a_chunk_is_full() {
        let len = (u64::from(RAW_BLOCKS_MAX) * 2 + 3) * 4096;
        let file = tempfile::tempfile().unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let bytes: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
        file.write_all_at(&bytes, 0).unwrap();
        let out = tempfile::tempfile().unwrap();
        write(&Raw::new(&file, len, Vec::new()), &out, &|_| ()).unwrap();
        let (unpacked, kinds) = unpack(&out);
        assert!(unpacked == bytes);
        assert_eq!(kinds, [RAW; 3]);
    }

    #[test]
    fn an_image_that_does_not_fit_is_refused() {
        assert!(check(1 << 40).is_ok());
        assert!(check(1024 + 4096).unwrap_err().to_string().contains("--size"));
        assert!(check(1 << 44).unwrap_err().to_string().contains("4294967295 blocks"));
    }
}
