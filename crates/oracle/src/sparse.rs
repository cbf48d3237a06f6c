//! Copies of images, of which most is holes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// What is read at once, and left out if all of it is zero, in bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// Copies an image; what is zero becomes holes. What was in the other file is gone.
///
/// # Panics
/// Naming the files, if one cannot be read or written.
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

/// The first run of data from a place on.
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

    use super::copy_image;
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
    }
}
