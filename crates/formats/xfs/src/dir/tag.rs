//! Tags of directory blocks.

use engine::Tag;
use vfs::Ino;

use crate::format::address::FileBlock;
use crate::format::dir::DirBlockKind;
use crate::kind::BlockKind;

/// Returns the tag of a directory block that is one file-system block.
pub(super) fn tag_of(part: DirBlockKind, dir: Ino, at: FileBlock) -> Tag {
    let kind = match part {
        DirBlockKind::Data => BlockKind::DirData,
        DirBlockKind::Leaf => BlockKind::DirLeaf,
        DirBlockKind::Free => BlockKind::DirFree,
    };
    kind.of_inode(dir, at.0 as u32)
}
