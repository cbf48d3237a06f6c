//! Reading of Android sparse images (version 1.0), as created by `mke2fs -E android_sparse`.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use tempfile::NamedTempFile;

use crate::failure::{Failure, STATUSES};

const MAGIC: u32 = 0xed26_ff3a;
const MAJOR_VERSION: u16 = 1;
/// Minimum sizes of file and chunk headers; the actual sizes are in the file.
const FILE_HEADER_BYTES: usize = 28;
const CHUNK_HEADER_BYTES: usize = 12;
/// Chunk types: raw data, fill pattern, don't-care blocks, and checksum.
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC32: u16 = 0xcac4;
/// Maximum size of an image in bytes, the format's limit with 4096-byte blocks.
const BYTES_MAX: u64 = (1 << 32) * 4096;

/// Expands a sparse image to a raw one in the same directory. Returns `None` for other formats.
pub(super) fn expanded(path: &Path) -> Result<Option<NamedTempFile>, Failure> {
    let failed = |e: std::io::Error| STATUSES.failed(format_args!("{}: {e}", path.display()));
    let damaged = |what: &str| STATUSES.failed(format_args!("{}: {what}", path.display()));
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(failed)?;
    if magic != MAGIC.to_le_bytes() {
        return Ok(None);
    }
    let mut header = [0; FILE_HEADER_BYTES - 4];
    file.read_exact(&mut header).map_err(failed)?;
    let (major, file_header) = (u16_at(&header, 0), usize::from(u16_at(&header, 4)));
    let chunk_header = usize::from(u16_at(&header, 6));
    let (block, blocks) = (u64::from(u32_at(&header, 8)), u64::from(u32_at(&header, 12)));
    let chunks = u32_at(&header, 16);
    let fits = file_header >= FILE_HEADER_BYTES && chunk_header >= CHUNK_HEADER_BYTES;
    if major != MAJOR_VERSION || !fits || block == 0 || block % 4 != 0 || block * blocks > BYTES_MAX
    {
        return Err(damaged("the sparse image is damaged or has another version"));
    }
    skip(&mut file, file_header - FILE_HEADER_BYTES).map_err(failed)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut raw = NamedTempFile::new_in(parent.unwrap_or(Path::new("."))).map_err(failed)?;
    let mut at = 0;
    for _ in 0..chunks {
        let mut chunk = [0; CHUNK_HEADER_BYTES];
        file.read_exact(&mut chunk).map_err(failed)?;
        skip(&mut file, chunk_header - CHUNK_HEADER_BYTES).map_err(failed)?;
        let (kind, count) = (u16_at(&chunk, 0), u64::from(u32_at(&chunk, 4)));
        let data = u64::from(u32_at(&chunk, 8)).checked_sub(chunk_header as u64);
        let len = count * block;
        let data = data.filter(|_| at + len <= block * blocks);
        raw.as_file_mut().seek(SeekFrom::Start(at)).map_err(failed)?;
        match (kind, data) {
            (RAW, Some(data)) if data == len => {
                let copied = std::io::copy(&mut file.by_ref().take(len), raw.as_file_mut());
                if copied.map_err(failed)? != len {
                    return Err(damaged("unexpected end of the sparse image"));
                }
            }
            (FILL, Some(4)) => {
                let mut word = [0; 4];
                file.read_exact(&mut word).map_err(failed)?;
                if word != [0; 4] {
                    let bytes = word.repeat(block as usize / 4);
                    for _ in 0..count {
                        raw.as_file_mut().write_all(&bytes).map_err(failed)?;
                    }
                }
            }
            (DONT_CARE, Some(0)) => {}
            (CRC32, Some(4)) => skip(&mut file, 4).map_err(failed)?,
            _ => return Err(damaged("a chunk of the sparse image is damaged")),
        }
        at += len;
    }
    raw.as_file().set_len(block * blocks).map_err(failed)?;
    Ok(Some(raw))
}

fn skip(file: &mut impl Read, bytes: usize) -> std::io::Result<()> {
    let mut rest = vec![0; bytes];
    file.read_exact(&mut rest)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
