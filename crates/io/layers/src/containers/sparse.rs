//! Android sparse images of version 1.

use std::io;
use std::sync::Arc;

use disk::BlockDevice;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::CONVERT;
use super::device::{BlockMap, BlockPlace, ContainerDevice, TableFile};
use crate::{LayerError, Result, raw};

/// Magic number at the start.
pub const MAGIC: u32 = 0xed26_ff3a;
const HEADER: &str = "Android sparse header";
const CHUNK: &str = "Android sparse chunk";
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC: u16 = 0xcac4;
/// Maximum number of chunks, which limits the memory of their index to 400 MB.
const CHUNKS_MAX: u32 = 1 << 24;

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: U32,
    major: U16,
    minor: U16,
    header_bytes: U16,
    chunk_header_bytes: U16,
    block_bytes: U32,
    blocks: U32,
    chunks: U32,
    checksum: U32,
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct ChunkHeader {
    kind: U16,
    reserved: U16,
    blocks: U32,
    bytes: U32,
}

const _: () = assert!(size_of::<Header>() == 28);
const _: () = assert!(size_of::<ChunkHeader>() == 12);

/// Start of each chunk on the disk, with its place.
pub struct SparseMap {
    chunks: Vec<(u64, BlockPlace)>,
    len: u64,
}

/// Opens the image in a file. Reads the headers of all chunks.
///
/// # Errors
/// If a header is damaged, or the chunks do not cover the image.
pub fn open(file: Arc<dyn BlockDevice>) -> Result<ContainerDevice<SparseMap>> {
    let header: Header = raw::structure(&*file, HEADER, 0)?;
    let bad = |problem: String| LayerError::damaged(HEADER, 0, problem);
    if header.major.get() != 1 {
        let what = format!("an Android sparse image of version {}", header.major);
        return Err(LayerError::unsupported(what, CONVERT));
    }
    let sizes = (header.header_bytes.get(), header.chunk_header_bytes.get());
    if sizes.0 < 28 || sizes.1 < 12 {
        return Err(bad(format!("headers of {} and {} bytes", sizes.0, sizes.1)));
    }
    let block = u64::from(header.block_bytes.get());
    if block == 0 || block % 4 != 0 {
        return Err(bad(format!("blocks of {block} bytes")));
    }
    if header.chunks.get() > CHUNKS_MAX {
        return Err(bad(format!("{} chunks, expected at most {CHUNKS_MAX}", header.chunks)));
    }
    let (mut at, mut start, mut chunks) = (u64::from(sizes.0), 0, Vec::new());
    for _ in 0..header.chunks.get() {
        let (place, blocks, bytes) = chunk(&*file, at, block, sizes.1)?;
        if let Some(place) = place.filter(|_| blocks > 0) {
            chunks.push((start, place));
            start += blocks * block;
        }
        at += bytes;
    }
    let len = u64::from(header.blocks.get()) * block;
    if start != len {
        return Err(bad(format!("chunks of {start} bytes for an image of {len} bytes")));
    }
    Ok(ContainerDevice::new(file, SparseMap { chunks, len }, len))
}

/// Reads one chunk. Returns its place, unless it has no blocks of the image, and its length in blocks and in the file.
fn chunk(
    file: &dyn BlockDevice,
    at: u64,
    block: u64,
    header_bytes: u16,
) -> Result<(Option<BlockPlace>, u64, u64)> {
    let header: ChunkHeader = raw::structure(file, CHUNK, at)?;
    let bad = |problem: String| LayerError::damaged(CHUNK, at, problem);
    let (blocks, bytes) = (u64::from(header.blocks.get()), u64::from(header.bytes.get()));
    let data = at + u64::from(header_bytes);
    let (place, expected) = match header.kind.get() {
        RAW => (Some(BlockPlace::File(data)), blocks * block),
        FILL => (Some(BlockPlace::Fill(raw::structure(file, CHUNK, data)?)), 4),
        DONT_CARE => (Some(BlockPlace::Zeros), 0),
        CRC => (None, 4),
        kind => return Err(bad(format!("type {kind:#x}"))),
    };
    let expected = expected + u64::from(header_bytes);
    if bytes != expected || at + bytes > file.len() {
        return Err(bad(format!("{bytes} bytes, expected {expected} within {} bytes", file.len())));
    }
    Ok((place, blocks, bytes))
}

impl BlockMap for SparseMap {
    fn locate(&self, _: &TableFile, offset: u64) -> io::Result<(BlockPlace, u64, u64)> {
        let index = self.chunks.partition_point(|(start, _)| *start <= offset);
        let Some((start, place)) = index.checked_sub(1).map(|index| &self.chunks[index]) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let end = self.chunks.get(index).map_or(self.len, |(next, _)| *next);
        Ok((place.clone(), offset - start, end - offset))
    }
}
