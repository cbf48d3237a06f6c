//! Copies of sparse images.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Read size in bytes. Pieces of zeros are omitted.
const PIECE_BYTES: u64 = 64 << 10;

/// Granularity of holes in bytes.
const SECTOR_BYTES: usize = 512;

/// Copies an image; zeros become holes. Replaces the target.
///
/// # Panics
/// If a file cannot be read or written.
#[track_caller]
pub fn copy_image(from: &Path, to: &Path) {
    try_copy(from, to)
        .unwrap_or_else(|error| panic!("{} to {}: {error}", from.display(), to.display()));
}

fn try_copy(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    to.set_len(from.metadata()?.len())?;
    for_each_piece(&from, |offset, bytes| to.write_all_at(bytes, offset))
}

/// Returns the length of a file, and a checksum of its non-zero parts and their offsets. Files with equal contents have
/// equal results, independent of their holes.
///
/// # Panics
/// If the file cannot be read.
#[track_caller]
pub fn digest(path: &Path) -> (u64, u32) {
    try_digest(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn try_digest(path: &Path) -> io::Result<(u64, u32)> {
    let (file, mut sum) = (File::open(path)?, 0);
    for_each_piece(&file, |offset, bytes| {
        // Holes begin and end at sectors, which differ between files.
        let sectors = bytes.chunks(SECTOR_BYTES).zip((offset..).step_by(SECTOR_BYTES));
        for (sector, at) in sectors.filter(|(sector, _)| sector.iter().any(|byte| *byte != 0)) {
            sum = crc32c::crc32c_append(sum, &at.to_le_bytes());
            sum = crc32c::crc32c_append(sum, sector);
        }
        Ok(())
    })?;
    Ok((file.metadata()?.len(), sum))
}

/// Calls `each` with the offset and the bytes of every piece of a file that is not all zeros.
pub(crate) fn for_each_piece(
    file: &File,
    mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    static ZEROS: [u8; PIECE_BYTES as usize] = [0; PIECE_BYTES as usize];
    let mut buffer = vec![0; PIECE_BYTES as usize];
    let mut at = 0;
    while let Some(run) = next_run(file, at)? {
        at = run.start;
        while at < run.end {
            let piece = &mut buffer[..(run.end - at).min(PIECE_BYTES) as usize];
            file.read_exact_at(piece, at)?;
            let len = piece.len();
            if *piece != ZEROS[..len] {
                each(at, piece)?;
            }
            at += len as u64;
        }
    }
    Ok(())
}

/// Returns the first run of data from an offset on.
fn next_run(file: &File, at: u64) -> io::Result<Option<Range<u64>>> {
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        // No data from here to the end.
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(start..seek(file, SeekFrom::Hole(start))?))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::{copy_image, digest};
    use crate::scratch;

    #[test]
    fn a_copy_is_the_same_and_as_sparse() {
        let home = scratch();
        let (image, copy) = (home.path().join("image"), home.path().join("copy"));
        fs::write(&copy, vec![0xee; 3 << 20]).unwrap();
        let file = File::create(&image).unwrap();
        file.set_len(40 << 20).unwrap();
        for (at, len) in [(0, 10), (5 << 20, 2 << 20), ((40 << 20) - 1, 1)] {
            file.write_all_at(&vec![7; len], at).unwrap();
        }
        copy_image(&image, &copy);
        assert!(fs::read(&image).unwrap() == fs::read(&copy).unwrap());
        assert!(fs::metadata(&copy).unwrap().blocks() <= fs::metadata(&image).unwrap().blocks());
        assert_eq!(digest(&image), digest(&copy));
    }

    #[test]
    fn a_digest_depends_on_contents_and_length_but_not_on_holes() {
        let home = scratch();
        let path = home.path().join("file");
        let of = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            digest(&path)
        };
        let mut bytes = vec![0; 300_000];
        bytes[70_000] = 1;
        let first = of(&bytes);
        File::create(&path).unwrap().set_len(300_000).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[1], 70_000).unwrap();
        assert_eq!(digest(&path), first);
        bytes.push(0);
        assert_ne!(of(&bytes), first);
        bytes.pop();
        bytes.swap(70_000, 70_512);
        assert_ne!(of(&bytes), first);
    }
}
