//! Host file that gets its name when it is complete.
//!
//! Until then it has a temporary name in the same directory. It is removed on failure and on interrupts, but not if the
//! process is killed.
//!
//! On Windows a locked file cannot be read through other handles, even by this process, which may read the file it will
//! replace. The lock of that file is therefore only checked at creation and again at naming, and is not held in
//! between.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::host;
use crate::lock::{ANOTHER, QEMU, Refused, WRITER_ADVICE, lock, qemu};
use crate::signals::{TemporaryName, TemporaryNames};

pub(crate) use crate::lock::Replace;

/// Suffix of temporary names.
const SUFFIX: &str = ".part";

/// New file, which is removed unless it is [kept](Self::keep).
pub(crate) struct Replacement {
    path: PathBuf,
    file: NamedTempFile,
    // Declared after the file, so that it is dropped later.
    _listed: TemporaryName,
    replace: Replace,
}

impl Replacement {
    /// Creates a file to be named `path`. An existing link is replaced itself, but its target must not be in use.
    ///
    /// # Errors
    /// If an existing file must not be replaced or is in use, or the file cannot be created.
    pub(crate) fn create(path: &Path, replace: Replace) -> Result<Self, Refused> {
        let name = path.file_name().ok_or_else(|| io::Error::other("not a file name"))?;
        check_old(path, replace)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        // Interrupts wait until the name is listed.
        let mut names = TemporaryNames::hold();
        let file = Builder::new()
            .prefix(&prefix)
            .suffix(SUFFIX)
            .tempfile_in(parent.unwrap_or(Path::new(".")))?;
        let listed = names.add(file.path());
        Ok(Self { path: path.to_owned(), file, _listed: listed, replace })
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Names the finished file.
    ///
    /// # Errors
    /// If this fails, for example because another file got the name meanwhile. The new file is removed then.
    pub(crate) fn keep(self) -> Result<(), Refused> {
        let Self { path, file, _listed, replace } = self;
        let is_old = check_old(&path, replace)?;
        let kept = if is_old { file.persist(&path) } else { file.persist_noclobber(&path) };
        match kept {
            Ok(_) => Ok(()),
            Err(failed) if failed.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Refused::Exists)
            }
            Err(failed) => Err(failed.error.into()),
        }
    }
}

/// Rejects an existing file that must not be replaced or is in use. Returns whether a file exists.
fn check_old(path: &Path, replace: Replace) -> Result<bool, Refused> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e.into()),
        Ok(_) if replace == Replace::Nothing => return Err(Refused::Exists),
        Ok(found) if found.is_dir() => {
            return Err(io::Error::other("a directory with that name exists").into());
        }
        Ok(_) => {}
    }
    // A dangling link cannot be an image in use.
    let found = match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        found => found?,
    };
    if replace == Replace::Empty && !(found.is_file() && found.len() == 0) {
        return Err(Refused::Exists);
    }
    if found.is_file() {
        refuse_used(path)?;
    }
    Ok(true)
}

/// Rejects a locked file.
///
/// # Errors
/// If it is locked, or cannot be opened for the check.
pub(crate) fn refuse_used(path: &Path) -> Result<(), Refused> {
    let file = match File::options().read(true).write(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => File::open(path)?,
        file => file?,
    };
    // The lock ends when the file is dropped.
    let id = host::id_of(&file)?;
    lock(&file, File::try_lock, id, ANOTHER, WRITER_ADVICE)?;
    lock(&file, qemu::try_claim, id, QEMU, WRITER_ADVICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_locked_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, b"old").unwrap();
        let user = File::open(&path).unwrap();
        user.lock_shared().unwrap();
        assert!(matches!(
            Replacement::create(&path, Replace::Anything),
            Err(Refused::InUse { .. })
        ));
        drop(user);
        Replacement::create(&path, Replace::Anything).unwrap().keep().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
