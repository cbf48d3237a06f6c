//! `dumpe2fs`: shows the superblock, the journal superblock, and the block groups.

mod groups;
mod header;
mod journal;

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use disk::BlockDevice;
use ext4::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};

use crate::failure::{Ended, Failure, STATUSES};
use crate::foreign;
use crate::invoked::{Invoked, say_all};
use crate::supported;
use crate::target::ImageTarget;
use crate::words::{Word, Words};

pub(crate) use header::{DATA_MODES, HASHES, MOUNT_OPTIONS, local, text};
pub(crate) use journal::lines as journal_lines;

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let mut words = Words::new(arguments, STATUSES, &supported::DUMPE2FS);
    let mut image: Option<PathBuf> = None;
    let mut only_header = false;
    let mut is_hex = false;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('h') => only_header = true,
            Word::Option('x') => is_hex = true,
            // Unknown features are shown even without it.
            Word::Option('f') => {}
            Word::Option('V') => return Ok(invoked.version()),
            Word::Option('o') => {
                return Err(
                    words.refused("only the primary superblock is shown; use e2fsck with backups")
                );
            }
            Word::Option('b' | 'g' | 'i' | 'm') => {
                return Err(words.refused("use diskwright dump to show single structures"));
            }
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    let image = words.target(image)?;
    if let Some(text) = journal::device_lines(&image) {
        say_all(&text);
        return Ok(0);
    }
    let (device, superblock) = open(&image)?;
    let mut out = header::lines(&superblock.raw);
    out += &journal::lines(&device, &superblock);
    out.push('\n');
    if !only_header {
        out.push('\n');
        say_all(&out);
        out = groups::lines(&device, &superblock, is_hex).map_err(|e| at(&image, &e))?;
    }
    say_all(&out);
    Ok(0)
}

/// Prints the output of `tune2fs -l`.
pub(crate) fn show(superblock: &Superblock) {
    say_all(&header::lines(&superblock.raw));
}

/// Reads and verifies the primary superblock of an image.
pub(crate) fn superblock(image: &ImageTarget) -> Result<Superblock, Failure> {
    open(image).map(|(_, superblock)| superblock)
}

fn open(image: &ImageTarget) -> Result<(Arc<dyn BlockDevice>, Superblock), Failure> {
    let device = foreign::open(&image.path, image.offset).map_err(|e| at(image, &e))?;
    let superblock = read_superblock(&*device).map_err(|e| at(image, &e))?;
    Ok((device, superblock))
}

/// Reads and verifies the primary superblock on a device.
pub(crate) fn read_superblock(device: &dyn BlockDevice) -> vfs::Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(SUPERBLOCK_OFFSET, &mut bytes).map_err(vfs::Error::Device)?;
    Superblock::parse(&bytes, device.len())
}

fn at(image: &ImageTarget, error: &dyn Display) -> Failure {
    STATUSES.failed(format_args!("{}: {error}", image.path.display()))
}
