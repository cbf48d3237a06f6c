//! A compressed archive in memory, read as a stream.

use std::error::Error;
use std::io::{Cursor, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use import::{EntryKind, Source, TAR_BLOCK_BYTES, TarHeader, TarSource};

use crate::digest::Digest;
use crate::load::Random;

const FILES: u64 = 200;

/// Creates an archive, reads it, and returns the digest of its contents.
pub(crate) fn read() -> Result<u32, Box<dyn Error>> {
    let mut random = Random::new(3);
    let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
    for number in 0..FILES {
        let data = vec![number as u8; random.index(5000)];
        let name = format!("directory/file-{number}");
        let mut header = TarHeader::new(b'0', name.as_bytes(), data.len() as u64);
        archive.write_all(header.finish())?;
        archive.write_all(&data)?;
        let padding = data.len().next_multiple_of(TAR_BLOCK_BYTES) - data.len();
        archive.write_all(&vec![0; padding])?;
    }
    archive.write_all(&[0; 2 * TAR_BLOCK_BYTES])?;
    let mut source =
        TarSource::from_stream(Cursor::new(archive.finish()?), "an archive in memory")?;
    let (mut digest, mut files) = (Digest::default(), 0);
    while let Some(entry) = source.next_entry()? {
        digest.add(&entry.path);
        let EntryKind::File(content) = entry.kind else { return Err("not a file".into()) };
        let mut bytes = vec![0; usize::try_from(content.size())?];
        let mut filled = 0;
        while filled < bytes.len() {
            match source.read(&mut bytes[filled..])? {
                0 => return Err("a file ends early".into()),
                n => filled += n,
            }
        }
        digest.add(&bytes);
        files += 1;
    }
    if files == FILES { Ok(digest.finish()) } else { Err(format!("{files} files").into()) }
}
