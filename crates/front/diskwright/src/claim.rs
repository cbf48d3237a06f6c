//! Locking of a file that is to be replaced, on Linux: by an open directory and a name.

use std::cell::OnceCell;
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::host::FileId;
use crate::lock::{ANOTHER, LoopFiles, QEMU, Refused, TRIES, WRITER_ADVICE, lock, qemu};

impl From<Errno> for Refused {
    fn from(error: Errno) -> Self {
        Self::Host(error.into())
    }
}

/// Treatment of a link at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkTreatment {
    Follow,
    /// Do not follow it.
    Keep,
}

/// Locks the regular file with a name like a writer, so that it can be replaced. The lock must be held until then.
/// Returns `None` if there is no file that could be an image.
///
/// # Errors
/// If the file is in use, also by the kernel through one of `loops`, or if it cannot be opened.
pub(crate) fn claim(
    dir: BorrowedFd<'_>,
    name: &[u8],
    link: LinkTreatment,
    loops: &OnceCell<LoopFiles>,
) -> Result<Option<File>, Refused> {
    for _ in 0..TRIES {
        let Some(found) = regular(dir, name, link)? else { return Ok(None) };
        let Some(file) = open_to_claim(dir, name, link, &found)? else { return Ok(None) };
        let opened = fstat(&file)?;
        // The file may have been replaced before it was locked, for example by a pipe.
        let id = FileId { dev: opened.st_dev, ino: opened.st_ino };
        if is_regular(&opened) {
            lock(&file, File::try_lock, id, ANOTHER, WRITER_ADVICE)?;
            lock(&file, qemu::try_claim, id, QEMU, WRITER_ADVICE)?;
        }
        if is_regular(&opened) && is_named(dir, name, link, &file)? {
            loops.get_or_init(LoopFiles::attached).refuse(id)?;
            return Ok(Some(file));
        }
    }
    Err(Refused::always_replaced())
}

/// Returns whether a name refers to this open file.
pub(crate) fn is_named(
    dir: BorrowedFd<'_>,
    name: &[u8],
    link: LinkTreatment,
    file: &File,
) -> Result<bool, Errno> {
    let Some(found) = regular(dir, name, link)? else { return Ok(false) };
    let opened = fstat(file)?;
    Ok((found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino))
}

fn regular(dir: BorrowedFd<'_>, name: &[u8], link: LinkTreatment) -> Result<Option<Stat>, Errno> {
    let flags =
        if link == LinkTreatment::Keep { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
    match statat(dir, name, flags) {
        Ok(stat) => Ok(Some(stat).filter(is_regular)),
        Err(Errno::NOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

/// Opens a file in a mode in which it can be locked. Returns `None` for a file of this user without any permissions,
/// because it cannot be in use as an image.
fn open_to_claim(
    dir: BorrowedFd<'_>,
    name: &[u8],
    link: LinkTreatment,
    found: &Stat,
) -> Result<Option<File>, Refused> {
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if link == LinkTreatment::Keep {
        flags |= OFlags::NOFOLLOW;
    }
    // Some network file systems lock only files open for writing, but write access is not always possible.
    let mut denied = Errno::ACCESS;
    for access in [OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY] {
        match openat(dir, name, flags | access, Mode::empty()) {
            Ok(file) => return Ok(Some(file.into())),
            Err(Errno::NOENT) => return Ok(None),
            Err(e @ (Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY)) => denied = e,
            Err(e) => return Err(e.into()),
        }
    }
    if found.st_uid == rustix::process::geteuid().as_raw() {
        return Ok(None);
    }
    let problem = format!("cannot determine whether the existing file is in use: {denied}");
    Err(Refused::Host(io::Error::other(problem)))
}
