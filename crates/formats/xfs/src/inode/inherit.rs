//! Attributes that a new inode inherits from its directory, except the project: allocation hints and flags, as kernels
//! inherit them by default (`fs.xfs.inherit_*`).

use vfs::FileType;

use crate::format::geometry::Geometry;
use crate::format::inode::{Inode, flags, flags2};
use crate::inode::Handle;

/// Flags that all new inodes inherit from their directory.
const FOR_ALL: u16 =
    flags::SYNC | flags::NOATIME | flags::NODUMP | flags::NODEFRAG | flags::FILESTREAM;

/// Sets the flags that a new inode, whose type is set, inherits from `parent`. Its extent size hints are copied for
/// kernels; this implementation does not use them.
pub(crate) fn inherit_flags(geometry: &Geometry, parent: &Handle, child: &mut Inode) {
    let from = &parent.inode;
    let mut own = child.flags() | from.flags() & FOR_ALL;
    let inherits_realtime = from.flags() & flags::RTINHERIT != 0;
    let realtime = geometry.realtime.filter(|_| inherits_realtime);
    match child.file_type() {
        Some(FileType::Directory) if inherits_realtime => own |= flags::RTINHERIT,
        Some(FileType::Regular) if realtime.is_some() => own |= flags::REALTIME,
        _ => {}
    }
    // A hint must be a multiple of the realtime extent.
    let unit = realtime.map_or(1, |realtime| realtime.extent_blocks());
    let is_usable = from.extent_size_hint().is_multiple_of(unit);
    if is_usable && from.flags() & flags::EXTSZINHERIT != 0 && from.extent_size_hint() != 0 {
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
