//! Host file that gets its name when it is complete.
//!
//! Until then it is anonymous (`O_TMPFILE`) and disappears when the process ends. To replace an existing file it
//! briefly needs a temporary name, because rename requires one. File systems without anonymous files use a temporary
//! name from the start. The file is then locked, so that the next program that creates a file of this name can detect
//! and remove an abandoned one.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, fstat, linkat, openat, renameat, renameat_with, stat,
};
use rustix::io::Errno;

use crate::claim::{LinkTreatment, claim, is_named};
use crate::lock::Refused;
use crate::signals::{TemporaryName, TemporaryNames};

pub(crate) use crate::lock::Replace;

/// Maximum number of bytes of the name that are used in a temporary name.
const NAME_BYTES_MAX: usize = 240;

/// Maximum number of concurrent unfinished files of one name.
const PARTS_MAX: u32 = 64;

/// Number of temporary names that are checked for abandoned files.
const LEFT_MAX: u32 = 4;

/// New file, which is removed unless it is [kept](Self::keep).
pub(crate) struct Replacement {
    dir: Arc<OwnedFd>,
    name: OsString,
    file: File,
    /// Temporary name, if anonymous files are not supported.
    part: Option<TemporaryName>,
    replace: Replace,
    /// Existing file of the name, locked until the end.
    old: Old,
}

enum Old {
    /// None exists.
    Nothing,
    /// Regular file, locked against other programs.
    Claimed(File),
    /// Another type, such as a dangling link.
    Other,
}

impl Replacement {
    /// Creates a file to be named `path`. An existing link is replaced itself, but its target must not be in use.
    ///
    /// # Errors
    /// If an existing file must not be replaced or is in use, or the file cannot be created.
    pub(crate) fn create(path: &Path, replace: Replace) -> Result<Self, Refused> {
        Self::create_in(path, replace, unnamed)
    }

    fn create_in(
        path: &Path,
        replace: Replace,
        unnamed: impl FnOnce(&OwnedFd) -> Option<File>,
    ) -> Result<Self, Refused> {
        let name = path.file_name().ok_or_else(|| io::Error::other("not a file name"))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = parent.unwrap_or(Path::new("."));
        let dir = Arc::new(openat(CWD, parent, flags, Mode::empty())?);
        let old = claim_old(&dir, name, replace)?;
        for number in 0..LEFT_MAX {
            remove_left(&dir, &part_name(name, number));
        }
        let (file, part) = match unnamed(&dir) {
            Some(file) => (file, None),
            None => named(&dir, name).map(|(file, part)| (file, Some(part)))?,
        };
        Ok(Self { dir, name: name.to_owned(), file, part, replace, old })
    }

    /// Returns the open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Names the finished file.
    ///
    /// # Errors
    /// If this fails, for example because another file got the name meanwhile. The new file is removed then.
    pub(crate) fn keep(mut self) -> Result<(), Refused> {
        loop {
            let replaces = match &self.old {
                Old::Nothing => false,
                // Other programs may replace the file without checking locks.
                Old::Claimed(old) if !self.is_still(old)? => {
                    self.old = claim_old(&self.dir, &self.name, self.replace)?;
                    continue;
                }
                Old::Claimed(_) | Old::Other => true,
            };
            match self.name_it(replaces) {
                Err(Errno::EXIST) if !replaces => {
                    self.old = claim_old(&self.dir, &self.name, self.replace)?;
                }
                named => return Ok(named?),
            }
        }
    }

    fn is_still(&self, old: &File) -> Result<bool, Errno> {
        is_named(self.dir.as_fd(), self.name.as_bytes(), LinkTreatment::Follow, old)
    }

    /// Names the file, replacing an existing file or only if there is none.
    fn name_it(&mut self, replaces: bool) -> Result<(), Errno> {
        // Temporary names that are not listed must be removed before a signal handler can end the process.
        let mut names = TemporaryNames::hold();
        match self.part.as_ref() {
            None if !replaces => link(&self.file, &self.dir, &self.name),
            None => {
                let part = link_part(&self.file, &self.dir, &self.name)?;
                let renamed = renameat(&self.dir, &part.name, &self.dir, &self.name);
                renamed.inspect_err(|_| part.remove())
            }
            Some(part) => {
                if replaces {
                    renameat(&self.dir, &part.name, &self.dir, &self.name)?;
                } else {
                    rename_to_new(&self.dir, &part.name, &self.name)?;
                }
                names.forget(part);
                self.part = None;
                Ok(())
            }
        }
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if let Some(part) = self.part.take() {
            let mut names = TemporaryNames::hold();
            part.remove();
            names.forget(&part);
        }
    }
}

/// Locks the file to be replaced.
fn claim_old(dir: &OwnedFd, name: &OsStr, replace: Replace) -> Result<Old, Refused> {
    if let Err(Errno::NOENT) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        return Ok(Old::Nothing);
    }
    if replace == Replace::Nothing {
        return Err(Refused::Exists);
    }
    let old = claim(dir.as_fd(), name.as_bytes(), LinkTreatment::Follow, &OnceCell::new())?;
    let is_empty = old.as_ref().is_some_and(|old| old.metadata().is_ok_and(|old| old.len() == 0));
    if replace == Replace::Empty && !is_empty {
        return Err(Refused::Exists);
    }
    Ok(old.map_or(Old::Other, Old::Claimed))
}

/// Creates an anonymous file, if it can be created and named later.
fn unnamed(dir: &OwnedFd) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(openat(dir, ".", flags, Mode::from_raw_mode(0o666)).ok()?);
    // Without /proc it cannot be named.
    let (there, here) = (stat(proc_path(&file)).ok()?, fstat(&file).ok()?);
    if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) {
        return None;
    }
    // For the short time when it has a temporary name. Locks may be unsupported.
    let _ = file.try_lock();
    Some(file)
}

fn proc_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives an anonymous file an unused name.
fn link(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    linkat(CWD, proc_path(file), dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Gives an anonymous file a temporary name.
fn link_part(file: &File, dir: &Arc<OwnedFd>, name: &OsStr) -> Result<TemporaryName, Errno> {
    for number in 0..PARTS_MAX {
        let part = part_name(name, number);
        match link(file, dir, &part) {
            Ok(()) => return Ok(TemporaryName { dir: Arc::clone(dir), name: part }),
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::EXIST)
}

/// Renames a file to an unused name, also on file systems without `RENAME_NOREPLACE`.
fn rename_to_new(dir: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        renamed => return renamed,
    }
    match rustix::fs::statat(dir, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => renameat(dir, from, dir, to),
        Err(e) => Err(e),
        Ok(_) => Err(Errno::EXIST),
    }
}

/// Returns the temporary name with a number for a file to be named `name`.
fn part_name(name: &OsStr, number: u32) -> OsString {
    let name = name.as_bytes();
    let mut part = OsString::from(".");
    part.push(OsStr::from_bytes(&name[..name.len().min(NAME_BYTES_MAX)]));
    part.push(format!(".{number}.part"));
    part
}

/// Creates and locks a file with a temporary name.
fn named(dir: &Arc<OwnedFd>, name: &OsStr) -> io::Result<(File, TemporaryName)> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    for number in 0..PARTS_MAX {
        let part = TemporaryName { dir: Arc::clone(dir), name: part_name(name, number) };
        let mut names = TemporaryNames::hold();
        let file = match openat(dir, &part.name, flags, Mode::from_raw_mode(0o666)) {
            Ok(file) => File::from(file),
            Err(Errno::EXIST) => continue,
            Err(e) => return Err(e.into()),
        };
        // Between creation and lock, another program may consider the file abandoned and remove it.
        let is_others = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if is_others || !is_named(dir.as_fd(), part.name.as_bytes(), LinkTreatment::Keep, &file)? {
            continue;
        }
        names.add(part.clone());
        return Ok((file, part));
    }
    Err(io::Error::other("too many unfinished files in its directory"))
}

/// Removes an abandoned file with a temporary name. Without lock support this cannot be detected, and the file remains.
fn remove_left(dir: &Arc<OwnedFd>, part: &OsStr) {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(dir, part, flags, Mode::empty()) else { return };
    let file = File::from(file);
    let is_left = file.try_lock().is_ok()
        && is_named(dir.as_fd(), part.as_bytes(), LinkTreatment::Keep, &file).unwrap_or(false);
    if is_left {
        TemporaryName { dir: Arc::clone(dir), name: part.to_owned() }.remove();
    }
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
