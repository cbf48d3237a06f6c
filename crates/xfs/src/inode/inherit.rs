//! What a new inode takes over from its directory, beside the project: hints for allocation, and how it
//! is to be treated by programs and kernels, as kernels do unless they are told otherwise
//! (`fs.xfs.inherit_*`).

use vfs::FileType;

use crate::format::inode::{Inode, flags, flags2};
use crate::inode::Handle;

/// Flags that everything made in a directory gets from it.
const FOR_ALL: u16 =
    flags::SYNC | flags::NOATIME | flags::NODUMP | flags::NODEFRAG | flags::FILESTREAM;

/// Gives a new inode, whose type is set, the flags that `parent` has for it. Its hints of how much to
/// allocate at once are kept for kernels: nothing here goes by them.
pub(crate) fn inherit_flags(parent: &Handle, child: &mut Inode) {
    let from = &parent.inode;
    let mut own = child.flags() | from.flags() & FOR_ALL;
    if child.is_dir() {
        own |= from.flags() & flags::RTINHERIT;
    }
    if from.flags() & flags::EXTSZINHERIT != 0 && from.extent_size_hint() != 0 {
        let flag = match child.file_type() {
            Some(FileType::Directory) => flags::EXTSZINHERIT,
            Some(FileType::Regular) => flags::EXTSIZE,
            _ => 0,
        };
        own |= flag;
        if flag != 0 {
            child.set_extent_size_hint(from.extent_size_hint());
        }
    }
    child.set_flags(own);
    let holds_data = matches!(child.file_type(), Some(FileType::Directory | FileType::Regular));
    if holds_data {
        let mut own = child.flags2() | from.flags2() & flags2::DAX;
        if from.flags2() & flags2::COWEXTSIZE != 0 && from.cow_extent_size_hint() != 0 {
            own |= flags2::COWEXTSIZE;
            child.set_cow_extent_size_hint(from.cow_extent_size_hint());
        }
        child.set_flags2(own);
    }
}
