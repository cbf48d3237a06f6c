//! Changes of an image with options from JavaScript. Each is atomic, except overwriting contents of an existing file.

use diskwright::Image;
use diskwright::fs::{DirBuilder, File, FileTimes, Timestamp};
use serde::Deserialize;

use crate::failure::{Failure, Result};

/// Permissions and owner of a new file.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct New {
    mode: Option<u32>,
    uid: u32,
    gid: u32,
}

impl New {
    fn mode(self, usual: u32) -> u32 {
        self.mode.unwrap_or(usual) & 0o7777
    }
}

/// Attributes to change.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Change {
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    atime: Option<(i64, u32)>,
    mtime: Option<(i64, u32)>,
    /// Change a symbolic link at the end of the path instead of its target.
    nofollow: bool,
}

/// Creates a file or replaces its contents.
///
/// # Errors
/// Same as [`OpenOptions::write_whole`](diskwright::fs::OpenOptions::write_whole).
pub(crate) fn write_file(image: &Image, path: &[u8], contents: &[u8], new: New) -> Result<()> {
    let options = File::options().mode(new.mode(0o644)).owner(new.uid, new.gid);
    Ok(options.write_whole(image, path, contents)?)
}

/// Writes bytes to an existing file.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_at(image: &Image, path: &[u8], offset: u64, bytes: &[u8]) -> Result<()> {
    File::options().write(true).open(image, path)?.write_at(bytes, offset)?;
    Ok(())
}

/// Sets the size of a file.
///
/// # Errors
/// If it cannot be changed.
pub(crate) fn truncate(image: &Image, path: &[u8], size: u64) -> Result<()> {
    Ok(File::options().write(true).open(image, path)?.set_len(size)?)
}

/// Creates a directory. With `all`, also creates missing parents and accepts an existing directory.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn mkdir(image: &Image, path: &[u8], all: bool, new: New) -> Result<()> {
    let options = DirBuilder::new().mode(new.mode(0o755)).owner(new.uid, new.gid);
    Ok(options.recursive(all).create(image, path)?)
}

/// Removes a file or an empty directory, with `all` recursively.
///
/// # Errors
/// If it does not exist or cannot be removed.
pub(crate) fn remove(image: &Image, path: &[u8], all: bool) -> Result<()> {
    Ok(match image.symlink_metadata(path)?.is_dir() {
        true if all => image.remove_dir_all(path),
        true => image.remove_dir(path),
        false => image.remove_file(path),
    }?)
}

/// Creates a symbolic link at `path`.
///
/// # Errors
/// If it cannot be created.
pub(crate) fn symlink(image: &Image, target: &[u8], path: &[u8], new: New) -> Result<()> {
    Ok(image.symlink_owned(target, path, (new.uid, new.gid))?)
}

/// Changes permissions, owners and times.
///
/// # Errors
/// If they cannot be changed.
pub(crate) fn set_attributes(image: &Image, path: &[u8], change: Change) -> Result<()> {
    let Change { mode, uid, gid, atime, mtime, nofollow } = change;
    if [atime, mtime].into_iter().flatten().any(|(_, nsec)| nsec >= 1_000_000_000) {
        return Err(Failure::invalid("nanoseconds of a time must be below 1,000,000,000"));
    }
    if uid.is_some() || gid.is_some() {
        let change_owner = if nofollow { Image::lchown } else { Image::chown };
        change_owner(image, path, uid, gid)?;
    }
    if let Some(mode) = mode {
        image.set_permissions(path, mode & 0o7777)?;
    }
    let mut times = FileTimes::new();
    for (time, set) in [
        (atime, FileTimes::set_accessed as fn(_, Timestamp) -> _),
        (mtime, FileTimes::set_modified),
    ] {
        if let Some((sec, nsec)) = time {
            times = set(times, Timestamp { sec, nsec });
        }
    }
    if atime.is_some() || mtime.is_some() {
        let set = if nofollow { Image::set_times_nofollow } else { Image::set_times };
        set(image, path, times)?;
    }
    Ok(())
}

/// Sets or removes an extended attribute. Links are not followed.
///
/// # Errors
/// If it cannot be changed.
pub(crate) fn set_xattr(
    image: &Image,
    path: &[u8],
    name: &[u8],
    value: Option<&[u8]>,
) -> Result<()> {
    Ok(match value {
        Some(value) => image.set_xattr(path, name, value),
        None => image.remove_xattr(path, name),
    }?)
}
