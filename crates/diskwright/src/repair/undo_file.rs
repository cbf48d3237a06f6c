//! Where undo files lie.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::host::{self, FileTypeExt};
use crate::{Error, Result};

/// Most undo files of one image that get names by themselves.
const NAMES_MAX: u32 = 1000;

/// Makes a new undo file under that name.
pub(super) fn create(path: &Path) -> Result<File> {
    try_create(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let why = "it exists already; restore what it is of, or remove it";
            Error::host("make the undo file", path, io::Error::new(error.kind(), why))
        }
        _ => Error::host("make the undo file", path, error),
    })
}

/// Makes one beside an image, or in the current directory if that is a device, under a name that is not taken.
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
    let why = "undo files of earlier repairs have all names; remove some";
    Err(Error::host("make an undo file for", image, io::Error::other(why)))
}

/// Removes one of an image that was not changed.
pub(super) fn remove(path: &Path) {
    // One that stays says that there is nothing to restore.
    let _ = std::fs::remove_file(path);
}

fn try_create(path: &Path) -> io::Result<File> {
    // What was in an image may be anybody's secret.
    let file = host::private(File::options().write(true).create_new(true)).open(path)?;
    // Its name must be as durable as what it holds.
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
