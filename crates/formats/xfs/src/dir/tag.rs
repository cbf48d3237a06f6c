//! Tags of directory blocks.

use engine::Tag;
use vfs::Ino;

use crate::format::address::FileBlock;
use crate::format::dir::Part;
use crate::kind::Kind;

/// Returns the tag of a directory block that is one file-system block.
pub(super) fn tag_of(part: Part, dir: Ino, at: FileBlock) -> Tag {
    let kind = match part {
        Part::Data => Kind::DirData,
        Part::Leaf => Kind::DirLeaf,
        Part::Free => Kind::DirFree,
    };
    kind.of_inode(dir, at.0 as u32)
}
