//! The source, which may have to be read more than once.

use std::io;
use std::path::{Path, PathBuf};

use source::{FileId, Options, Source, TarSource};
use tempfile::NamedTempFile;

use super::BuildError;

/// Where entries come from.
pub(super) enum Input {
    /// A directory or an archive file.
    Path(PathBuf),
    /// A copy of the archive on standard input.
    Copy(NamedTempFile),
    /// The archive on standard input itself.
    Once,
}

impl Input {
    /// Prepares a source. An archive on standard input that may have to be read again is copied to
    /// a file beside the image first.
    ///
    /// # Errors
    /// If that cannot be.
    pub(super) fn prepare(source: &Path, image: &Path, may_read_twice: bool) -> io::Result<Self> {
        if source != Path::new("-") {
            return Ok(Self::Path(source.to_owned()));
        }
        if !may_read_twice {
            return Ok(Self::Once);
        }
        let beside = image.parent().filter(|p| !p.as_os_str().is_empty());
        let mut copy = NamedTempFile::new_in(beside.unwrap_or(Path::new(".")))?;
        io::copy(&mut io::stdin().lock(), copy.as_file_mut())?;
        Ok(Self::Copy(copy))
    }

    pub(super) fn is_directory(&self) -> bool {
        matches!(self, Self::Path(path) if path.is_dir())
    }

    pub(super) fn can_be_read_again(&self) -> bool {
        !matches!(self, Self::Once)
    }

    /// Opens it from its start. `images` are left out of a directory that holds them.
    pub(super) fn open(
        &self,
        threads: usize,
        images: Vec<FileId>,
    ) -> Result<Box<dyn Source>, BuildError> {
        let options = Options { threads, exclude: images };
        Ok(match self {
            Self::Path(path) => source::open(path, &options)?,
            Self::Copy(file) => Box::new(TarSource::open(file.path())?),
            Self::Once => source::open(Path::new("-"), &options)?,
        })
    }
}
