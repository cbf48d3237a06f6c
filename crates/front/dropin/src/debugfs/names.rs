//! Requests that create and remove names.
//!
//! Like in the original, `link` and `unlink` do not change link counts: scripts set `links_count` themselves.

use vfs::{DeviceNumber, Error, FileSystem, FileType, SpecialFile};

use super::phrases::words;
use super::request::{Request, shown};
use super::session::DebugSession;
use crate::failure::{Failure, STATUSES};
use crate::fields;
use crate::invoked::say;

/// Permissions of a new directory.
const DIRECTORY_PERMISSIONS: u16 = 0o755;
/// Permissions of a symbolic link.
const LINK_PERMISSIONS: u16 = 0o777;

/// `link FILE NAME`. A directory as NAME takes the name of FILE.
pub(super) fn link(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [from, to] = request.exactly()?;
    let ino = session.ino(from)?;
    let (mut dir, mut name) = session.parent(to)?;
    let fs = session.fs()?;
    if let Ok(found) = fs.lookup(dir, name)
        && fs.attributes(found).is_ok_and(|found| found.file_type == FileType::Directory)
    {
        dir = found;
        name = from.rsplit(|&byte| byte == b'/').next().unwrap_or(from);
    }
    fs.enter_name(dir, name, ino).map_err(|e| request.failed(words(&e)))
}

/// `unlink NAME`.
pub(super) fn unlink(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let (dir, name) = session.parent(path)?;
    session.fs()?.remove_name(dir, name).map_err(|e| request.failed(words(&e)))
}

/// Fails for a missing file with the original's message for removals, which contains the request.
fn must_exist(session: &mut DebugSession, request: &Request, path: &[u8]) -> Result<(), Failure> {
    let found = session.ino(path).map(drop);
    found.map_err(|_| {
        request.failed(format_args!("{} while trying to resolve filename", words(&Error::NotFound)))
    })
}

/// `rm FILE`.
pub(super) fn remove(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    must_exist(session, request, path)?;
    let (dir, name) = session.parent(path)?;
    let time = session.now();
    let removed = session.fs()?.unlink(dir, name, Some(time));
    removed.map_err(|e| request.failed(words(&e)))
}

/// `rmdir DIR`.
pub(super) fn remove_directory(
    session: &mut DebugSession,
    request: &Request,
) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    must_exist(session, request, path)?;
    let (dir, name) = session.parent(path)?;
    let time = session.now();
    session.fs()?.rmdir(dir, name, Some(time)).map_err(|e| match e {
        Error::NotADirectory => request.failed("file is not a directory"),
        e => request.failed(words(&e)),
    })
}

/// `mkdir DIR`.
pub(super) fn make_directory(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path] = request.exactly()?;
    let (dir, name) = session.parent(path)?;
    let new = session.new_inode(DIRECTORY_PERMISSIONS);
    let made = session.fs()?.mkdir(dir, name, &new);
    made.map(drop).map_err(|e| match e {
        Error::Exists => request.failed("Ext2 directory already exists"),
        e => request.failed(words(&e)),
    })
}

/// `symlink NAME TARGET`.
pub(super) fn symlink(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let [path, target] = request.exactly()?;
    let (dir, name) = session.parent(path)?;
    let new = session.new_inode(LINK_PERMISSIONS);
    let made = session.fs()?.symlink(dir, name, target, &new);
    made.map(drop).map_err(|e| request.failed(words(&e)))
}

/// `mknod NAME p`, or `mknod NAME c|b MAJOR MINOR`. Like in the original, the file has no permissions.
pub(super) fn make_node(session: &mut DebugSession, request: &Request) -> Result<(), Failure> {
    let number = |text: &[u8]| {
        let number = std::str::from_utf8(text).ok().and_then(fields::number);
        number.and_then(|n| u32::try_from(n).ok()).ok_or_else(|| request.wrong_words())
    };
    let (path, special) = match &*request.words {
        [path, kind] if kind == b"p" => (path, SpecialFile::Fifo),
        [path, kind, major, minor] if kind == b"c" || kind == b"b" => {
            let device = DeviceNumber { major: number(major)?, minor: number(minor)? };
            let make =
                if kind == b"b" { SpecialFile::BlockDevice } else { SpecialFile::CharDevice };
            (path, make(device))
        }
        _ => return Err(request.wrong_words()),
    };
    let (dir, name) = session.parent(path)?;
    let new = session.new_inode(0);
    let ino = session.fs()?.mknod(dir, name, special, &new);
    let ino = ino.map_err(|e| {
        STATUSES.failed(format_args!("{}: {}: {}", request.name, shown(path), words(&e)))
    })?;
    say(format_args!("Allocated inode: {ino}"));
    Ok(())
}
