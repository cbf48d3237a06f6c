//! Changes of an image. Each is atomic, except overwriting contents of an existing file.

use serde::Deserialize;
use vfs::path::LastLink;
use vfs::{
    ChangePurpose, Error, FileType, Ino, NewInode, Paths, RenameMode, SetAttributes, Timestamp,
};

use crate::failure::{Failure, Result};

/// Permissions and owner of a new file.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct New {
    mode: Option<u16>,
    uid: u32,
    gid: u32,
}

/// Attributes to change.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Change {
    mode: Option<u16>,
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<(i64, u32)>,
    mtime: Option<(i64, u32)>,
    /// Change a symbolic link at the end of the path instead of its target.
    nofollow: bool,
}

fn now() -> Timestamp {
    vfs::clock::now().unwrap_or_default()
}

/// Returns the initial attributes of a new file in `dir`. As on Linux, files in a set-group-ID directory inherit its
/// group, and directories also the bit.
fn new_inode(
    paths: Paths<'_>,
    dir: Ino,
    new: New,
    usual: u16,
    file_type: FileType,
) -> vfs::Result<NewInode> {
    let parent = paths.file_system().attributes(dir)?;
    let time = now();
    let mut inode = NewInode {
        permissions: new.mode.unwrap_or(usual) & 0o7777,
        uid: new.uid,
        gid: new.gid,
        time,
        parent_time: Some(time),
    };
    if parent.permissions & 0o2000 != 0 {
        inode.gid = parent.gid;
        if file_type == FileType::Directory {
            inode.permissions |= 0o2000;
        }
    }
    Ok(inode)
}

/// Creates a file or replaces its contents. A new file gets its name when it is complete; an existing file keeps its
/// inode and is overwritten.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_file(paths: Paths<'_>, path: &[u8], contents: &[u8], new: New) -> Result<()> {
    let at = |error| Failure::at(path, error);
    match paths.resolve(path, LastLink::Follow) {
        Ok(ino) => overwrite(paths, ino, contents).map_err(at),
        Err(Error::NotFound) => {
            let (dir, name) = paths.parent_of_target(path).map_err(at)?;
            make_whole(paths, dir, &name, contents, new).map_err(at)
        }
        Err(error) => Err(at(error)),
    }
}

fn check_regular(paths: Paths<'_>, ino: Ino) -> vfs::Result<()> {
    match paths.file_system().attributes(ino)?.file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

fn overwrite(paths: Paths<'_>, ino: Ino, contents: &[u8]) -> vfs::Result<()> {
    check_regular(paths, ino)?;
    let fs = paths.file_system();
    let time = Some(now());
    fs.truncate(ino, 0, time)?;
    fs.write(ino, 0, contents, time)
}

fn make_whole(
    paths: Paths<'_>,
    dir: Ino,
    name: &[u8],
    contents: &[u8],
    new: New,
) -> vfs::Result<()> {
    vfs::names::check_name(name)?;
    let fs = paths.file_system();
    let inode = new_inode(paths, dir, new, 0o644, FileType::Regular)?;
    let ino = fs.create_unlinked(dir, &inode)?;
    let made = fs.write(ino, 0, contents, Some(inode.time));
    let made = made.and_then(|()| fs.link(ino, dir, name, Some(inode.time)));
    // Without a name, closing frees it.
    let closed = fs.close(ino);
    made.and(closed)
}

/// Writes bytes to an existing file.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_at(paths: Paths<'_>, path: &[u8], offset: u64, bytes: &[u8]) -> Result<()> {
    let write = || {
        let ino = paths.resolve(path, LastLink::Follow)?;
        check_regular(paths, ino)?;
        paths.file_system().write(ino, offset, bytes, Some(now()))
    };
    write().map_err(|error| Failure::at(path, error))
}

/// Sets the size of a file.
///
/// # Errors
/// If it cannot be changed.
pub(crate) fn truncate(paths: Paths<'_>, path: &[u8], size: u64) -> Result<()> {
    let truncate = || {
        let ino = paths.resolve(path, LastLink::Follow)?;
        check_regular(paths, ino)?;
        paths.file_system().truncate(ino, size, Some(now()))
    };
    truncate().map_err(|error| Failure::at(path, error))
}

/// Creates a directory. With `all`, also creates missing parents and accepts an existing directory.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn mkdir(paths: Paths<'_>, path: &[u8], all: bool, new: New) -> Result<()> {
    let at = |error| Failure::at(path, error);
    if all {
        let root = paths.file_system().root();
        let inode = new_inode(paths, root, new, 0o755, FileType::Directory).map_err(at)?;
        return paths.create_dir_all(path, &inode).map(|_| ()).map_err(at);
    }
    // The root has no name and always exists.
    let Some((parent, name)) = vfs::path::split_last(path) else { return Err(at(Error::Exists)) };
    let make = || {
        let dir = paths.resolve(parent, LastLink::Follow)?;
        let inode = new_inode(paths, dir, new, 0o755, FileType::Directory)?;
        paths.file_system().mkdir(dir, name, &inode)
    };
    make().map(|_| ()).map_err(at)
}

/// Removes a file or an empty directory, with `all` recursively.
///
/// # Errors
/// If it does not exist or cannot be removed.
pub(crate) fn remove(paths: Paths<'_>, path: &[u8], all: bool) -> Result<()> {
    let time = Some(now());
    if all {
        return paths.remove_all(path, time, &mut || ()).map_err(|failed| {
            let below = [path, &b"/"[..], &failed.path].concat();
            Failure::at(if failed.path.is_empty() { path } else { &below }, failed.error)
        });
    }
    let remove = || match paths.symlink_metadata(path)?.file_type {
        FileType::Directory => paths.remove_dir(path, time),
        _ => paths.remove_file(path, time),
    };
    remove().map_err(|error| Failure::at(path, error))
}

/// Renames a file, replacing an existing target.
///
/// # Errors
/// If it cannot be renamed.
pub(crate) fn rename(paths: Paths<'_>, from: &[u8], to: &[u8]) -> Result<()> {
    let moved = paths.rename(from, to, RenameMode::Replace, Some(now()));
    moved.map_err(|error| Failure::at(from, error))
}

/// Creates a symbolic link at `path`.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn symlink(paths: Paths<'_>, target: &[u8], path: &[u8], new: New) -> Result<()> {
    let make = || {
        let (dir, name) = paths.parent(path)?;
        let inode = new_inode(paths, dir, new, 0o777, FileType::Symlink)?;
        paths.file_system().symlink(dir, name, target, &inode)
    };
    make().map(|_| ()).map_err(|error| Failure::at(path, error))
}

/// Creates a hard link.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn link(paths: Paths<'_>, existing: &[u8], path: &[u8]) -> Result<()> {
    let ino = paths.resolve(existing, LastLink::Keep).map_err(|e| Failure::at(existing, e))?;
    let link = || {
        let (dir, name) = paths.parent(path)?;
        paths.file_system().link(ino, dir, name, Some(now()))
    };
    link().map_err(|error| Failure::at(path, error))
}

/// Changes permissions, owners and times.
///
/// # Errors
/// If they cannot be changed.
pub(crate) fn set_attributes(paths: Paths<'_>, path: &[u8], change: Change) -> Result<()> {
    let time = |pair: Option<(i64, u32)>| pair.map(|(sec, nsec)| Timestamp { sec, nsec });
    if [change.atime, change.mtime].into_iter().flatten().any(|(_, nsec)| nsec >= 1_000_000_000) {
        return Err(Failure::invalid("nanoseconds of a time must be below 1,000,000,000"));
    }
    let last = if change.nofollow { LastLink::Keep } else { LastLink::Follow };
    let set = || {
        let ino = paths.resolve(path, last)?;
        paths.file_system().set_attributes(
            ino,
            &SetAttributes {
                permissions: change.mode.map(|mode| mode & 0o7777),
                uid: change.uid,
                gid: change.gid,
                atime: time(change.atime),
                mtime: time(change.mtime),
                ctime: Some(now()),
                crtime: None,
                purpose: ChangePurpose::Request,
            },
        )
    };
    set().map_err(|error| Failure::at(path, error))
}

/// Sets or removes an extended attribute. Links are not followed.
///
/// # Errors
/// If it cannot be changed.
pub(crate) fn set_xattr(
    paths: Paths<'_>,
    path: &[u8],
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    let set = || {
        let ino = paths.resolve(path, LastLink::Keep)?;
        let fs = paths.file_system();
        match value {
            Some(value) => fs.set_xattr(ino, name, value)?,
            None => fs.remove_xattr(ino, name)?,
        }
        let purpose = ChangePurpose::Consequence;
        fs.set_attributes(ino, &SetAttributes { ctime: Some(now()), purpose, ..Default::default() })
    };
    set().map_err(|error| Failure::at(path, error))
}
