//! A file of the host that gets its name when it is whole.
//!
//! Until then it has a temporary one beside it, which goes with it, also when the process is interrupted. A process
//! that is killed leaves it.
//!
//! Windows keeps everybody from reading a file that another handle has locked, this process too, which may have to
//! read what it will replace. So a file that is to be replaced is asked for its lock when the new one is begun and
//! again when it is named, and not kept locked between.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::host;
use crate::lock::{ANOTHER, QEMU, Refused, WRITER_ADVICE, lock, qemu};
use crate::signals::{TemporaryName, TemporaryNames};

pub(crate) use crate::lock::Replace;

/// What temporary names end with.
const SUFFIX: &str = ".part";

/// A new file, which goes away unless it is [kept](Self::keep).
pub(crate) struct Replacement {
    path: PathBuf,
    file: NamedTempFile,
    // After the file: it goes first.
    _listed: TemporaryName,
    replace: Replace,
}

impl Replacement {
    /// Begins a file that is to be called `path`. A link of that name is replaced itself, but what it leads
    /// to must not be in use.
    ///
    /// # Errors
    /// If there is a file that is not to be replaced or that somebody uses, or if none can be made there.
    pub(crate) fn create(path: &Path, replace: Replace) -> Result<Self, Refused> {
        let name = path.file_name().ok_or_else(|| io::Error::other("not a file name"))?;
        check_old(path, replace)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        prefix.push(".");
        // A signal that comes meanwhile waits until the list has the name.
        let mut names = TemporaryNames::hold();
        let file = Builder::new()
            .prefix(&prefix)
            .suffix(SUFFIX)
            .tempfile_in(parent.unwrap_or(Path::new(".")))?;
        let listed = names.add(file.path());
        Ok(Self { path: path.to_owned(), file, _listed: listed, replace })
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        self.file.as_file()
    }

    /// Gives the finished file its name.
    ///
    /// # Errors
    /// If that cannot be, because another file has got the name meanwhile, for example; the new one is
    /// gone then.
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

/// Refuses to replace what is there under a name, unless that is allowed and nobody uses it. Says whether anything is.
fn check_old(path: &Path, replace: Replace) -> Result<bool, Refused> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e.into()),
        Ok(_) if replace == Replace::Nothing => return Err(Refused::Exists),
        Ok(found) if found.is_dir() => {
            return Err(io::Error::other("a directory has that name").into());
        }
        Ok(_) => {}
    }
    // A link to nowhere is nobody's image.
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

/// Refuses a file that somebody has locked.
///
/// # Errors
/// If somebody has, or if it cannot be opened to be asked.
pub(crate) fn refuse_used(path: &Path) -> Result<(), Refused> {
    let file = match File::options().read(true).write(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => File::open(path)?,
        file => file?,
    };
    // The lock goes with the file.
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
