//! Names and creation of undo files.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::host::{self, FileTypeExt};
use crate::{Error, Result};

/// Maximum number of undo files with automatic names per image.
const NAMES_MAX: u32 = 1000;

/// Creates a new undo file with this name.
pub(super) fn create(path: &Path) -> Result<File> {
    try_create(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let why = "it exists already; restore its image, or remove it";
            Error::host("make the undo file", path, io::Error::new(error.kind(), why))
        }
        _ => Error::host("make the undo file", path, error),
    })
}

/// Creates an undo file with an unused name next to an image, or in the current directory if the image is a device.
pub(super) fn create_for(image: &Path) -> Result<(PathBuf, File)> {
    let is_device = std::fs::metadata(image).is_ok_and(|data| data.file_type().is_block_device());
    let directory = if is_device { None } else { image.parent() };
    let name = image.file_name().unwrap_or(image.as_os_str());
    for number in 0..NAMES_MAX {
        let mut name: OsString = name.to_owned();
        name.push(".undo");
        if number > 0 {
            name.push(format!(".{number}"));
        }
        let path = directory.map_or_else(|| PathBuf::from(&name), |dir| dir.join(&name));
        match try_create(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::host("make the undo file", path, error)),
        }
    }
    let why = "all names are taken by undo files of earlier repairs; remove some";
    Err(Error::host("make an undo file for", image, io::Error::other(why)))
}

/// Removes the undo file of an unchanged image.
pub(super) fn remove(path: &Path) {
    // A remaining file is harmless: it records that there is nothing to restore.
    let _ = std::fs::remove_file(path);
}

fn try_create(path: &Path) -> io::Result<File> {
    // The old contents may be confidential.
    let file = host::private(File::options().write(true).create_new(true)).open(path)?;
    // The file's name must be as durable as its contents.
    let directory = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    host::sync_directory(directory.unwrap_or(Path::new(".")))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_not_taken_twice() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("a.img");
        std::fs::write(&image, b"").unwrap();
        let (first, _) = create_for(&image).unwrap();
        let (second, _) = create_for(&image).unwrap();
        assert_eq!(
            (first, second),
            (dir.path().join("a.img.undo"), dir.path().join("a.img.undo.1"))
        );
        let error = create(&dir.path().join("a.img.undo")).unwrap_err();
        assert!(error.to_string().contains("exists already"), "{error}");
    }
}
