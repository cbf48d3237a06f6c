//! Report sentences for repairs of inodes.

use vfs::check::Finding;

use crate::check::codes::*;

/// Returns the sentence for the repair of a finding about an inode that stays in use.
pub(super) fn of_inode(finding: &Finding) -> String {
    let sentences = [
        (INODE_CHECKSUM, "The checksum of the inode is recomputed."),
        (INODE_MODE, "The file type of the inode is derived from its contents."),
        (INODE_FIELD, "The field is cleared."),
        (INODE_FLAGS, "The invalid flag is cleared."),
        (INODE_DELETION_TIME, "The deletion time is corrected."),
        (INODE_SIZE, "The size is set to the one derived from the blocks."),
        (INODE_BLOCKS, "The block count is recomputed."),
        (INODE_SPECIAL, "The inode is turned into a directory."),
        (SYMLINK, "The size is set to that of the stored target."),
        (INLINE_DATA, "The inline data is kept, and the size is set to its length."),
        (EXTENT_NODE, "The extent tree is rebuilt from the readable entries."),
        (EXTENT_CHECKSUM, "The extent tree is rewritten."),
        (EXTENT_PLACE, "The extent tree is rebuilt without the entry."),
        (EXTENT_START, "The extent tree is rewritten."),
        (EXTENT_UNWRITTEN, "The extent is marked as written."),
        (INDIRECT_PLACE, "The block map is rebuilt without the pointer."),
        (XATTR_INODE, "The readable attributes are rewritten."),
        (XATTR_BLOCK, "The readable attributes are kept."),
        (XATTR_CHECKSUM, "The attribute block is rewritten."),
        (XATTR_ENTRY, "The attributes are rewritten."),
        (XATTR_HASH, "The hash is recomputed."),
        (XATTR_VALUE, "An attribute without a value is removed."),
        (ACL, "The access control list is removed."),
    ];
    let found = sentences.iter().find(|(code, _)| *code == finding.code);
    found.map_or("The inode is rewritten.", |(_, sentence)| sentence).to_owned()
}
