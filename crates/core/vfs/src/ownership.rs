//! Rules of Linux for groups and set-id bits, which file systems leave to the servers above them.

use crate::{Attributes, FileType};

/// Set-user-ID bit.
pub const S_ISUID: u16 = 0o4000;
/// Set-group-ID bit.
pub const S_ISGID: u16 = 0o2000;
/// Sticky bit: only owners remove names from the directory.
pub const S_ISVTX: u16 = 0o1000;
/// Permission of the group to execute.
pub const S_IXGRP: u16 = 0o0010;

/// Returns the group of a new inode, by default `gid`, and the set-group-ID bit that a subdirectory inherits.
#[must_use]
pub fn inherited_group(parent: &Attributes, file_type: FileType, gid: u32) -> (u32, u16) {
    if parent.permissions & S_ISGID == 0 {
        return (gid, 0);
    }
    (parent.gid, if file_type == FileType::Directory { S_ISGID } else { 0 })
}

/// Returns permissions without the bits that a change of the contents or owner clears: set-user-ID, and set-group-ID if
/// the group may execute the file. Otherwise the latter is harmless, and a caller keeps it for whom `keeps_group` returns
/// true: the superuser and members of the group.
pub fn without_set_id(permissions: u16, keeps_group: impl FnOnce() -> bool) -> u16 {
    let is_program = permissions & S_IXGRP != 0;
    let is_cleared = permissions & S_ISGID != 0 && (is_program || !keeps_group());
    permissions & !S_ISUID & !if is_cleared { S_ISGID } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_id_bits_are_cleared_where_they_apply() {
        let outsider = |permissions| without_set_id(permissions, || false);
        let member = |permissions| without_set_id(permissions, || true);
        assert_eq!((outsider(0o6755), member(0o6755)), (0o755, 0o755));
        assert_eq!((outsider(0o6745), member(0o6745)), (0o745, 0o2745));
        assert_eq!((outsider(0o1755), member(0o644)), (0o1755, 0o644));
    }
}
