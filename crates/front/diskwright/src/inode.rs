//! Side effects of inode changes in Linux, which file systems leave to their callers.

use vfs::{
    Attributes, Error, FileSystem, FileType, Ino, NewInode, Result, SetAttributes, Timestamp,
};

/// Extended attribute that contains the capabilities of a program.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// Applies group inheritance to a new file in `dir`. Files in a set-group-ID directory inherit its group, and
/// directories also the bit.
pub(crate) fn inherit_group(
    fs: &dyn FileSystem,
    dir: Ino,
    mut new: NewInode,
    file_type: FileType,
) -> Result<NewInode> {
    let parent = fs.attributes(dir)?;
    if parent.permissions & 0o2000 != 0 {
        new.gid = parent.gid;
        if file_type == FileType::Directory {
            new.permissions |= 0o2000;
        }
    }
    Ok(new)
}

/// Sets the owner, the group or both. Files except directories lose their set-user-ID bit, their set-group-ID bit if
/// they are group-executable, and their capabilities.
pub(crate) fn change_owner(
    fs: &dyn FileSystem,
    old: &Attributes,
    (uid, gid): (Option<u32>, Option<u32>),
    time: Timestamp,
) -> Result<()> {
    let mut change = SetAttributes { uid, gid, ctime: Some(time), ..SetAttributes::default() };
    if old.file_type == FileType::Regular {
        let executes = old.permissions & 0o010 != 0;
        let dropped = if executes { 0o6000 } else { 0o4000 };
        change.permissions = Some(old.permissions & !dropped);
        match fs.remove_xattr(old.ino, CAPABILITY) {
            Ok(()) | Err(Error::NoAttribute) => {}
            Err(error) => return Err(error),
        }
    }
    fs.set_attributes(old.ino, &change)
}
