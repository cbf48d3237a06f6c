//! Image file under construction. It is anonymous, so a failed build leaves no file under the requested name.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::BuildError;
use super::head_last::Head;
use crate::host::{self, FileTypeExt};
use crate::lock::{self, Refused};
use crate::replace::{Replace, Replacement};
use crate::{Error, Result};

/// File that becomes the image on [`Target::keep`] and is removed otherwise.
pub(super) struct TargetFile {
    image: PathBuf,
    place: TargetPlace,
    /// Anonymous file for the raw image, if the output has another format.
    raw: Option<File>,
    /// First bytes of an image that is written in place; they are written last.
    head: Option<Head>,
    /// Byte offset of the image in the file.
    offset: u64,
}

enum TargetPlace {
    /// Block device, written in place.
    Device(File),
    /// Regular file, written in place.
    Existing(File),
    New(Replacement),
}

impl TargetFile {
    /// Prepares to write `image`. An existing file must be empty and regular, unless `force`, and not in use. With
    /// `in_place` it is overwritten, otherwise replaced.
    pub(super) fn create(image: &Path, force: bool, in_place: bool) -> Result<Self, BuildError> {
        let at = |source| BuildError::Image(Box::new(Error::host("write", image, source)));
        let place = match std::fs::metadata(image) {
            Ok(metadata) if metadata.file_type().is_block_device() => {
                if !force {
                    return Err(BuildError::TargetExists(image.to_owned()));
                }
                let file = lock::open_to_write(image);
                TargetPlace::Device(file.map_err(|e| BuildError::Image(Box::new(e)))?)
            }
            Ok(metadata) if !metadata.is_file() => {
                return Err(at(io::Error::other("neither a regular file nor a block device")));
            }
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(e)),
            Ok(metadata) if in_place => {
                if !force && metadata.len() > 0 {
                    return Err(BuildError::TargetExists(image.to_owned()));
                }
                let file = lock::open_to_write(image);
                TargetPlace::Existing(file.map_err(|e| BuildError::Image(Box::new(e)))?)
            }
            Ok(_) | Err(_) => {
                let replace = if force { Replace::Anything } else { Replace::Empty };
                let new = Replacement::create(image, replace);
                TargetPlace::New(new.map_err(|refused| refusal(refused, image))?)
            }
        };
        let is_over = in_place && !matches!(place, TargetPlace::New(_));
        let head = is_over.then(|| Head::new(0));
        Ok(Self { image: image.to_owned(), place, raw: None, head, offset: 0 })
    }

    /// Sets the byte offset of the image in the file. Preceding bytes are preserved.
    pub(super) fn at(mut self, offset: u64) -> Self {
        self.head = self.head.map(|_| Head::new(offset));
        self.offset = offset;
        self
    }

    /// Creates the raw image in an anonymous file in this directory.
    pub(super) fn set_apart(&mut self, directory: &Path) -> Result<(), BuildError> {
        self.raw = Some(tempfile::tempfile_in(directory).map_err(|e| self.error(e))?);
        if let TargetPlace::Existing(file) = &self.place {
            file.set_len(0).map_err(|e| self.error(e))?;
        }
        self.head = None;
        Ok(())
    }

    /// Returns the output file, if the raw image is in another one.
    pub(super) fn apart(&self) -> Option<&File> {
        self.raw.as_ref().map(|_| self.kept())
    }

    /// Returns the open file of the raw image.
    pub(super) fn file(&self) -> &File {
        self.raw.as_ref().unwrap_or_else(|| self.kept())
    }

    fn kept(&self) -> &File {
        match &self.place {
            TargetPlace::Device(file) | TargetPlace::Existing(file) => file,
            TargetPlace::New(new) => new.file(),
        }
    }

    /// Returns whether the target is a block device, whose size is fixed.
    pub(super) fn is_device(&self) -> bool {
        matches!(self.place, TargetPlace::Device(_))
    }

    /// Returns whether the raw image overwrites existing contents.
    pub(super) fn is_in_place(&self) -> bool {
        self.raw.is_none() && !matches!(self.place, TargetPlace::New(_))
    }

    /// Returns the byte offset of the image in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the first bytes, if they are to be written last.
    pub(super) fn head(&self) -> Option<&Head> {
        self.head.as_ref()
    }

    /// Returns the identities of the new file and the file to be replaced, for exclusion from a source directory.
    pub(super) fn ids(&self) -> Result<Vec<import::FileId>, BuildError> {
        let mut ids = vec![host::id_of(self.file()).map_err(|e| self.error(e))?.into()];
        if let Some(kept) = self.apart() {
            ids.push(host::id_of(kept).map_err(|e| self.error(e))?.into());
        }
        ids.extend(host::file_id(&self.image));
        Ok(ids)
    }

    /// Truncates the file and extends it to `len` bytes of holes. A file written in place is only extended if
    /// necessary.
    pub(super) fn reset(&self, len: u64) -> Result<(), BuildError> {
        if self.is_device() {
            return Ok(());
        }
        let len = self.offset.saturating_add(len);
        if self.is_in_place() {
            let there = self.file().metadata().map_err(|e| self.error(e))?.len();
            let enlarge = || if there < len { self.file().set_len(len) } else { Ok(()) };
            return enlarge().map_err(|e| self.error(e));
        }
        self.file().set_len(0).and_then(|()| self.file().set_len(len)).map_err(|e| self.error(e))
    }

    /// Renames the finished image into place.
    pub(super) fn keep(self) -> Result<(), BuildError> {
        if let Some(head) = &self.head {
            head.write(self.kept()).map_err(|e| self.error(e))?;
        }
        match self.place {
            TargetPlace::Device(_) | TargetPlace::Existing(_) => Ok(()),
            TargetPlace::New(new) => new.keep().map_err(|refused| refusal(refused, &self.image)),
        }
    }

    fn error(&self, source: io::Error) -> BuildError {
        BuildError::Image(Box::new(Error::host("write", &self.image, source)))
    }
}

/// Converts the refusal to create or replace a file.
pub(super) fn refusal(refused: Refused, image: &Path) -> BuildError {
    match refused {
        Refused::Exists => BuildError::TargetExists(image.to_owned()),
        other => BuildError::Image(Box::new(other.at("write", image))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_kept_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("x.img");
        let target = TargetFile::create(&image, false, false).unwrap();
        target.reset(1 << 20).unwrap();
        drop(target);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_an_empty_file_is_overwritten_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("x.img");
        std::fs::write(&image, b"precious").unwrap();
        assert!(matches!(
            TargetFile::create(&image, false, false),
            Err(BuildError::TargetExists(_))
        ));
        TargetFile::create(&image, true, false).unwrap().keep().unwrap();
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 0);
        TargetFile::create(&image, false, false).unwrap().keep().unwrap();
        assert!(TargetFile::create(dir.path(), true, false).is_err());
    }
}
