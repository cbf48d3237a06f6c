//! Changes of one inode, used for paths and for open files.

use vfs::{Error, FileSystem, FileType, Ino, Result, SetAttributes, Timestamp};

use crate::inode::change_owner;

/// Maximum size of an extended attribute's value on Linux (`XATTR_SIZE_MAX`).
const XATTR_BYTES_MAX: usize = 64 << 10;

pub(super) fn set_permissions(
    fs: &dyn FileSystem,
    ino: Ino,
    mode: u32,
    now: Timestamp,
) -> Result<()> {
    let Some(permissions) = u16::try_from(mode).ok().filter(|mode| *mode <= 0o7777) else {
        return Err(Error::Invalid("permissions must be below 0o10000"));
    };
    if fs.attributes(ino)?.file_type == FileType::Symlink {
        return Err(Error::Invalid("symbolic links have no permissions"));
    }
    let (permissions, ctime) = (Some(permissions), Some(now));
    fs.set_attributes(ino, &SetAttributes { permissions, ctime, ..SetAttributes::default() })
}

pub(super) fn set_owner(
    fs: &dyn FileSystem,
    ino: Ino,
    owner: (Option<u32>, Option<u32>),
    now: Timestamp,
) -> Result<()> {
    change_owner(fs, &fs.attributes(ino)?, owner, now)
}

pub(super) fn get_xattr(fs: &dyn FileSystem, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
    match fs.get_xattr(ino, name) {
        Ok(value) => Ok(Some(value)),
        Err(Error::NoAttribute) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn set_xattr(
    fs: &dyn FileSystem,
    ino: Ino,
    (name, value): (&[u8], &[u8]),
    now: Timestamp,
) -> Result<()> {
    if value.len() > XATTR_BYTES_MAX {
        return Err(Error::AttributeTooLarge("a value has at most 65536 bytes"));
    }
    fs.set_xattr(ino, name, value)?;
    touch(fs, ino, now)
}

pub(super) fn remove_xattr(
    fs: &dyn FileSystem,
    ino: Ino,
    name: &[u8],
    now: Timestamp,
) -> Result<()> {
    fs.remove_xattr(ino, name)?;
    touch(fs, ino, now)
}

pub(super) fn list_xattrs(fs: &dyn FileSystem, ino: Ino) -> Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()))?;
    names.sort_unstable();
    Ok(names)
}

/// Updates the ctime after a change. Protection flags are not checked again, because the change itself was allowed.
fn touch(fs: &dyn FileSystem, ino: Ino, now: Timestamp) -> Result<()> {
    let purpose = vfs::ChangePurpose::Consequence;
    fs.set_attributes(ino, &SetAttributes { ctime: Some(now), purpose, ..SetAttributes::default() })
}
