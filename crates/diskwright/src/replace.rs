//! A file of the host that gets its name when it is whole.
//!
//! Until then it has none (`O_TMPFILE`), so whatever ends the process leaves nothing. To replace another
//! file it needs a name for a moment, because only a name can be renamed over another. Where a file system
//! has no files without names, it has such a name from the start; then it is locked, so that the next
//! program that makes a file of this name knows what has no owner any more, and removes it.

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

use crate::claim::{Link, claim, is_named};
use crate::lock::Refused;
use crate::signals::{TemporaryName, TemporaryNames};

pub(crate) use crate::lock::Replace;

/// Most bytes of its name in a temporary one, which is longer and must not be too long.
const NAME_BYTES_MAX: usize = 240;

/// Most unfinished files of one name at a time.
const PARTS_MAX: u32 = 64;

/// Temporary names that are looked at for what others have left.
const LEFT_MAX: u32 = 4;

/// A new file, which goes away unless it is [kept](Self::keep).
pub(crate) struct Replacement {
    dir: Arc<OwnedFd>,
    name: OsString,
    file: File,
    /// The name it has until it is kept, where it cannot be without.
    part: Option<TemporaryName>,
    replace: Replace,
    /// What has the name now, locked from here on.
    old: Old,
}

enum Old {
    /// There is none.
    Nothing,
    /// A regular file that nobody else uses meanwhile.
    Claimed(File),
    /// A link to nowhere, for example.
    Other,
}

impl Replacement {
    /// Begins a file that is to be called `path`. A link of that name is replaced itself, but what it leads
    /// to must not be in use.
    ///
    /// # Errors
    /// If there is a file that is not to be replaced or that somebody uses, or if none can be made there.
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

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the finished file its name.
    ///
    /// # Errors
    /// If that cannot be, because another file has got the name meanwhile, for example; the new one is
    /// gone then.
    pub(crate) fn keep(mut self) -> Result<(), Refused> {
        loop {
            let replaces = match &self.old {
                Old::Nothing => false,
                // Not every program asks for locks before it replaces a file.
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
        is_named(self.dir.as_fd(), self.name.as_bytes(), Link::Follow, old)
    }

    /// Gives the file its name, in place of what has it or only if nothing has.
    fn name_it(&mut self, replaces: bool) -> Result<(), Errno> {
        // A temporary name that no list has is gone before a signal can end the process.
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

/// Locks what is to be replaced.
fn claim_old(dir: &OwnedFd, name: &OsStr, replace: Replace) -> Result<Old, Refused> {
    if let Err(Errno::NOENT) = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        return Ok(Old::Nothing);
    }
    if replace == Replace::Nothing {
        return Err(Refused::Exists);
    }
    let old = claim(dir.as_fd(), name.as_bytes(), Link::Follow, &OnceCell::new())?;
    let is_empty = old.as_ref().is_some_and(|old| old.metadata().is_ok_and(|old| old.len() == 0));
    if replace == Replace::Empty && !is_empty {
        return Err(Refused::Exists);
    }
    Ok(old.map_or(Old::Other, Old::Claimed))
}

/// A file without a name, if it can be made and be given one later.
fn unnamed(dir: &OwnedFd) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(openat(dir, ".", flags, Mode::from_raw_mode(0o666)).ok()?);
    // Without /proc there is no way to name it.
    let (there, here) = (stat(proc_path(&file)).ok()?, fstat(&file).ok()?);
    if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) {
        return None;
    }
    // For the moment in which it has a temporary name. There may be no locks here.
    let _ = file.try_lock();
    Some(file)
}

fn proc_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Gives a file without a name one that nothing else has.
fn link(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    linkat(CWD, proc_path(file), dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Gives a file without a name a temporary one.
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

/// Renames a file to a name that nothing has, also where the file system cannot do that in one step.
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

/// The temporary name with a number of what will be called `name`.
fn part_name(name: &OsStr, number: u32) -> OsString {
    let name = name.as_bytes();
    let mut part = OsString::from(".");
    part.push(OsStr::from_bytes(&name[..name.len().min(NAME_BYTES_MAX)]));
    part.push(format!(".{number}.part"));
    part
}

/// Makes a file under a temporary name, and locks it.
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
        // Between these two, another program may take it for one that was left, and remove it.
        let is_others = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        if is_others || !is_named(dir.as_fd(), part.name.as_bytes(), Link::Keep, &file)? {
            continue;
        }
        names.add(part.clone());
        return Ok((file, part));
    }
    Err(io::Error::other("too many unfinished files beside it"))
}

/// Removes a file under a temporary name whose owner is gone. Where there are no locks, that cannot be
/// told, and it stays.
fn remove_left(dir: &Arc<OwnedFd>, part: &OsStr) {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = openat(dir, part, flags, Mode::empty()) else { return };
    let file = File::from(file);
    let is_left = file.try_lock().is_ok()
        && is_named(dir.as_fd(), part.as_bytes(), Link::Keep, &file).unwrap_or(false);
    if is_left {
        TemporaryName { dir: Arc::clone(dir), name: part.to_owned() }.remove();
    }
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
