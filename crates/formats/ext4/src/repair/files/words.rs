//! Report sentences for repairs of inodes.

use vfs::check::Finding;

use crate::check::codes::*;

/// Returns the sentence for the repair of a finding about an inode that stays in use.
pub(super) fn of_inode(finding: &Finding) -> String {
    let sentences = [
        (INODE_CHECKSUM, "The checksum of the inode is computed again."),
        (INODE_MODE, "The inode gets the type that its contents have."),
        (INODE_FIELD, "The field is cleared."),
        (INODE_FLAGS, "The flag that cannot be is cleared."),
        (INODE_DELETION_TIME, "The time of deletion is set right."),
        (INODE_SIZE, "The size becomes the one that the blocks give."),
        (INODE_BLOCKS, "The number of blocks is counted again."),
        (INODE_SPECIAL, "The inode is made a directory."),
        (SYMLINK, "The size becomes that of the target that is there."),
        (INLINE_DATA, "What is in the inode is kept, and the size is set to that."),
        (EXTENT_NODE, "The extent tree is built anew of what can be read."),
        (EXTENT_CHECKSUM, "The extent tree is written anew."),
        (EXTENT_PLACE, "The extent tree is built anew without the entry."),
        (EXTENT_START, "The extent tree is written anew."),
        (EXTENT_UNWRITTEN, "The extent is marked as written."),
        (INDIRECT_PLACE, "The block map is built anew without the pointer."),
        (XATTR_INODE, "The attributes that can be read are written anew."),
        (XATTR_BLOCK, "The attributes that can be read are kept."),
        (XATTR_CHECKSUM, "The block of attributes is written anew."),
        (XATTR_ENTRY, "The attributes are written anew."),
        (XATTR_HASH, "The hash is computed again."),
        (XATTR_VALUE, "An attribute without its value is removed."),
        (ACL, "The access control list is removed."),
    ];
    let found = sentences.iter().find(|(code, _)| *code == finding.code);
    found.map_or("The inode is written anew.", |(_, sentence)| sentence).to_owned()
}
