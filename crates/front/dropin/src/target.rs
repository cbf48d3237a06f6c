//! Names of images: a path, optionally followed by `?offset=` and the byte offset of the file system. Undo files.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diskwright::ImageOptions;
use ext4::e2undo::UndoFile;
use ext4::format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};

use crate::failure::{Failure, Statuses};
use crate::invoked::say;

/// Separator between path and offset, as in the e2fsprogs library.
const SEPARATOR: &str = "?offset=";
/// Maximum of `s_log_block_size`: blocks of 64 KiB.
const BLOCK_SIZE_LOG_MAX: u32 = 6;

/// Image to open.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageTarget {
    pub(crate) path: PathBuf,
    /// Byte offset of the file system.
    pub(crate) offset: u64,
    /// Device of the journal, if the image does not contain it.
    pub(crate) journal: Option<PathBuf>,
    /// Undo file of `-z`.
    undo: Option<Arc<UndoFile>>,
}

impl ImageTarget {
    /// Parses a name. Without `?offset=`, or if it is not UTF-8, the whole name is a path.
    pub(crate) fn parse(name: OsString, statuses: Statuses) -> Result<Self, Failure> {
        let Some((path, offset)) = name.to_str().and_then(|name| name.split_once(SEPARATOR)) else {
            return Ok(Self { path: name.into(), ..Self::default() });
        };
        let offset = bytes(offset).ok_or_else(|| {
            let name = name.to_string_lossy();
            statuses.usage(format_args!("{name}: the offset is not a number of bytes: {offset:?}"))
        })?;
        Ok(Self { path: path.into(), offset, ..Self::default() })
    }

    /// Selects the image that fills this file or device.
    pub(crate) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), ..Self::default() }
    }

    /// Returns the options for opening the image.
    pub(crate) fn open(&self) -> ImageOptions {
        let mut open = ImageOptions::default().offset(self.offset);
        open.undo.clone_from(&self.undo);
        open.devices.log.clone_from(&self.journal);
        open
    }

    /// Starts the undo file of `-z`. All changes by way of [`Self::open`] are saved in it.
    pub(crate) fn begin_undo(&mut self, undo: &Path, statuses: Statuses) -> Result<(), Failure> {
        let failed = |e: io::Error| statuses.failed(format_args!("{}: {e}", undo.display()));
        let superblock = self.superblock().map_err(failed)?;
        let log =
            u32::from_le_bytes([superblock[24], superblock[25], superblock[26], superblock[27]]);
        // A damaged size may be the reason for a repair.
        let block_size = if log <= BLOCK_SIZE_LOG_MAX { 1024 << log } else { 4096 };
        let mut options = File::options();
        // The old contents may be confidential.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.write(true).create_new(true).open(undo).map_err(failed)?;
        let begun = UndoFile::begin(file, self.offset, block_size, &superblock);
        self.undo = Some(Arc::new(begun.map_err(failed)?));
        Ok(())
    }

    /// Completes the undo file of `-z` after all changes. Removes it if there were none.
    pub(crate) fn finish_undo(
        &self,
        undo: Option<&Path>,
        statuses: Statuses,
    ) -> Result<(), Failure> {
        let (Some(file), Some(undo)) = (&self.undo, undo) else { return Ok(()) };
        let failed = |e: io::Error| statuses.failed(format_args!("{}: {e}", undo.display()));
        if !file.has_contents() {
            return std::fs::remove_file(undo).map_err(failed);
        }
        let (undo, image) = (undo.display(), self.path.display());
        self.superblock().and_then(|superblock| file.finish(&superblock)).map_err(failed)?;
        say(format_args!(
            "The changes can be undone using the command:\n    e2undo {undo} {image}\n"
        ));
        Ok(())
    }

    fn superblock(&self) -> io::Result<[u8; SUPERBLOCK_SIZE]> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset.saturating_add(SUPERBLOCK_OFFSET)))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Parses decimal digits, or hexadecimal ones after `0x`.
fn bytes(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::STATUSES;

    fn parse(name: &str) -> Result<(PathBuf, u64), String> {
        let target = ImageTarget::parse(name.into(), STATUSES);
        target.map(|target| (target.path, target.offset)).map_err(|failure| failure.message)
    }

    #[test]
    fn names_end_before_the_offset() {
        let at = |path: &str, offset| Ok((PathBuf::from(path), offset));
        assert_eq!(parse("image"), at("image", 0));
        assert_eq!(parse("image?offset=1048576"), at("image", 1 << 20));
        assert_eq!(parse("dir/image?offset=0x100000"), at("dir/image", 1 << 20));
        // File names may contain a question mark.
        assert_eq!(parse("what?"), at("what?", 0));
        for wrong in ["image?offset=", "image?offset=1M", "image?offset=-1", "image?offset=1,x"] {
            assert!(parse(wrong).unwrap_err().contains("not a number of bytes"), "{wrong}");
        }
    }
}
