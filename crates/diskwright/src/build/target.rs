//! The image file while it is being made: under another name, so that a failed build leaves
//! nothing under the name that was asked for.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::BuildError;

/// A file that becomes the image when [`Target::keep`] is called, and goes away otherwise.
pub(super) struct Target {
    image: PathBuf,
    temporary: Option<PathBuf>,
    file: File,
}

impl Target {
    /// Prepares to write `image`. What is there already must be an empty regular file, unless
    /// `force`. A block device is written in place.
    pub(super) fn create(image: &Path, force: bool) -> Result<Self, BuildError> {
        let at = |source| BuildError::Target { image: image.to_owned(), source };
        match std::fs::metadata(image) {
            Ok(metadata) => {
                let empty_file = metadata.is_file() && metadata.len() == 0;
                if !empty_file && !force {
                    return Err(BuildError::TargetExists(image.to_owned()));
                }
                if metadata.file_type().is_block_device() {
                    let file = OpenOptions::new().read(true).write(true).open(image).map_err(at)?;
                    return Ok(Self { image: image.to_owned(), temporary: None, file });
                }
                if !metadata.is_file() {
                    return Err(at(io::Error::other("neither a regular file nor a block device")));
                }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(at(e)),
        }
        let (temporary, file) = create_beside(image).map_err(at)?;
        Ok(Self { image: image.to_owned(), temporary: Some(temporary), file })
    }

    /// The open file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a block device, whose size cannot be chosen.
    pub(super) fn is_device(&self) -> bool {
        self.temporary.is_none()
    }

    /// Where the file is on the host, and the one that it will replace, to leave them out of a
    /// source that contains them.
    pub(super) fn ids(&self) -> Result<Vec<source::FileId>, BuildError> {
        let id = |metadata: std::fs::Metadata| source::FileId {
            dev: metadata.dev(),
            ino: metadata.ino(),
        };
        let mut ids = vec![id(self.file.metadata().map_err(|e| self.error(e))?)];
        ids.extend(std::fs::metadata(&self.image).ok().map(id));
        Ok(ids)
    }

    /// Empties the file and gives it `len` zero bytes, as holes.
    pub(super) fn reset(&self, len: u64) -> Result<(), BuildError> {
        if self.is_device() {
            return Ok(());
        }
        self.file.set_len(0).and_then(|()| self.file.set_len(len)).map_err(|e| self.error(e))
    }

    /// Gives the finished image its name.
    pub(super) fn keep(mut self) -> Result<(), BuildError> {
        if let Some(temporary) = &self.temporary {
            std::fs::rename(temporary, &self.image).map_err(|e| self.error(e))?;
            self.temporary = None;
        }
        Ok(())
    }

    fn error(&self, source: io::Error) -> BuildError {
        BuildError::Target { image: self.image.clone(), source }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Nothing more can be done about a file that will not go.
            let _ = std::fs::remove_file(temporary);
        }
    }
}

fn create_beside(image: &Path) -> io::Result<(PathBuf, File)> {
    let name = image.file_name().ok_or_else(|| io::Error::other("not a file name"))?;
    for attempt in 0..100 {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{attempt}.part", std::process::id()));
        let path = image.with_file_name(hidden);
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::other("too many unfinished images beside it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_not_kept_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("x.img");
        let target = Target::create(&image, false).unwrap();
        target.reset(1 << 20).unwrap();
        drop(target);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_an_empty_file_is_overwritten_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("x.img");
        std::fs::write(&image, b"precious").unwrap();
        assert!(matches!(Target::create(&image, false), Err(BuildError::TargetExists(_))));
        Target::create(&image, true).unwrap().keep().unwrap();
        assert_eq!(std::fs::metadata(&image).unwrap().len(), 0);
        Target::create(&image, false).unwrap().keep().unwrap();
        assert!(Target::create(dir.path(), true).is_err());
    }
}
