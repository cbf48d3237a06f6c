//! Repairs of inodes and of everything that belongs to files.

mod attributes;
mod bad_blocks;
mod connect;
mod contents;
mod copies;
mod directories;
mod draft;
mod inode_draft;
mod inodes;
mod layout;
mod lost_found;
mod map;
mod names_in;
mod repair_context;
pub(super) mod reseal;
mod sharing;
mod words;

use operations::repair::Fix;
use vfs::check::Code;

use super::RepairJob;
use crate::check::codes::*;

/// Fixes of inodes and of what they own.
pub(super) const INODES: &[Fix<RepairJob>] = &[
    Fix { codes: &OF_INODES, repair: inodes::repair },
    Fix { codes: &[INODE_SPECIAL], repair: inodes::repair_root_only },
];

/// Fixes of inode faults that do not depend on other structures.
pub(super) const BY_THEMSELVES: &[Fix<RepairJob>] =
    &[Fix { codes: BY_ITSELF, repair: inodes::repair }];

/// Findings about an inode that do not depend on other structures.
const BY_ITSELF: &[&Code] = &[
    INODE_CHECKSUM,
    INODE_MODE,
    INODE_FIELD,
    INODE_FLAGS,
    INODE_DELETION_TIME,
    INODE_SIZE,
    INODE_BLOCKS,
    SYMLINK,
    INLINE_DATA,
    EXTENT_NODE,
    EXTENT_CHECKSUM,
    EXTENT_PLACE,
    EXTENT_START,
    EXTENT_UNWRITTEN,
    INDIRECT_PLACE,
];

/// Findings about an inode, including its attributes. They are repaired together, because together they show whether it
/// is an inode at all.
const OF_INODES: [&Code; BY_ITSELF.len() + inodes::OF_ATTRIBUTES.len()] = {
    let mut codes = [BY_ITSELF[0]; BY_ITSELF.len() + inodes::OF_ATTRIBUTES.len()];
    let (own, attributes) = codes.split_at_mut(BY_ITSELF.len());
    own.copy_from_slice(BY_ITSELF);
    attributes.copy_from_slice(inodes::OF_ATTRIBUTES);
    codes
};

/// Fixes of blocks with several claims, and of counts across inodes.
pub(super) const SHARING: &[Fix<RepairJob>] = &[
    Fix { codes: &[BLOCK_SHARED, BLOCK_METADATA, EXTENT_CLUSTER], repair: sharing::repair },
    Fix { codes: &[XATTR_REFERENCES], repair: attributes::repair_references },
    Fix { codes: &[XATTR_VALUE_REFERENCES], repair: inodes::repair_value_references },
];

/// Fixes of directory contents.
pub(super) const DIRECTORIES: &[Fix<RepairJob>] = &[Fix {
    codes: &[
        INODE_SIZE,
        DIR_HOLE,
        DIR_BLOCK,
        DIR_CHECKSUM,
        DIR_DOTS,
        DIR_NAME,
        DIR_DUPLICATE,
        DIR_INODE,
        DIR_TYPE,
        DIR_POLICY,
        HTREE_ROOT,
        HTREE_NODE,
        HTREE_CHECKSUM,
        HTREE_LEAF,
        HTREE_HASH,
    ],
    repair: directories::repair,
}];

/// Fixes of names and their targets.
pub(super) const NAMES: &[Fix<RepairJob>] = &[Fix {
    codes: &[INODE_UNATTACHED, DIR_NAMES, DIR_PARENT, DIR_LOST_FOUND],
    repair: connect::repair,
}];

/// Fixes of link counts, once names are right.
pub(super) const LINKS: &[Fix<RepairJob>] =
    &[Fix { codes: &[INODE_LINKS], repair: connect::repair_links }];
