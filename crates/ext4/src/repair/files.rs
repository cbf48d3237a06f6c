//! What belongs to files.

mod attributes;
mod connect;
mod contents;
mod directories;
mod draft;
mod inodes;
mod layout;
mod lost_found;
mod map;
mod names_in;
mod patient;
pub(super) mod reseal;
mod sharing;
mod ward;
mod words;

use ::check::Code;
use ::repair::Fix;

use super::Job;
use crate::check::codes::*;

/// Inodes and what they own.
pub(super) const INODES: &[Fix<Job>] = &[
    Fix { codes: &OF_INODES, mend: inodes::mend },
    Fix { codes: &[INODE_SPECIAL], mend: inodes::mend_root_only },
];

/// What is right or wrong of an inode by itself, whatever else can be read.
pub(super) const BY_THEMSELVES: &[Fix<Job>] = &[Fix { codes: BY_ITSELF, mend: inodes::mend }];

/// What is found of an inode by itself.
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

/// What is found of an inode, its attributes included. They are mended at once, because together they tell whether it
/// is one.
const OF_INODES: [&Code; BY_ITSELF.len() + inodes::OF_ATTRIBUTES.len()] = {
    let mut codes = [BY_ITSELF[0]; BY_ITSELF.len() + inodes::OF_ATTRIBUTES.len()];
    let (own, attributes) = codes.split_at_mut(BY_ITSELF.len());
    own.copy_from_slice(BY_ITSELF);
    attributes.copy_from_slice(inodes::OF_ATTRIBUTES);
    codes
};

/// What several inodes claim, and what is counted across them.
pub(super) const SHARING: &[Fix<Job>] = &[
    Fix { codes: &[BLOCK_SHARED, BLOCK_METADATA, EXTENT_CLUSTER], mend: sharing::mend },
    Fix { codes: &[XATTR_REFERENCES], mend: attributes::mend_references },
    Fix { codes: &[XATTR_VALUE_REFERENCES], mend: inodes::mend_value_references },
];

/// Contents of directories.
pub(super) const DIRECTORIES: &[Fix<Job>] = &[Fix {
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
    mend: directories::mend,
}];

/// Which names lead where.
pub(super) const NAMES: &[Fix<Job>] = &[Fix {
    codes: &[INODE_UNATTACHED, DIR_NAMES, DIR_PARENT, DIR_LOST_FOUND],
    mend: connect::mend,
}];

/// How many names lead to each inode, once they are right.
pub(super) const LINKS: &[Fix<Job>] = &[Fix { codes: &[INODE_LINKS], mend: connect::mend_links }];
