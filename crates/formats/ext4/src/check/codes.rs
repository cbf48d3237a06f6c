//! The catalogue of all findings of the check.

use vfs::check::{Code, Severity};

/// Declares codes and a list of all of them.
macro_rules! codes {
    ($($name:ident: $text:literal, $severity:ident, $structure:literal, $meaning:literal, $repair:literal;)*) => {
        $(pub(crate) const $name: &Code = &Code {
            name: $text,
            severity: Severity::$severity,
            structure: $structure,
            meaning: $meaning,
            repair: $repair,
        };)*

        /// All codes that [`super::check`] can report.
        pub const CODES: &[&Code] = &[$($name),*];
    };
}

codes! {
    IO: "ext4-io", Unusable, "device",
        "The device fails to read a place that the check needs.",
        "None: nothing is written. Copy the image to a sound device first, or try again.";
    SUPERBLOCK: "ext4-superblock", Unusable, "superblock",
        "The primary superblock is damaged.",
        "A sound copy takes its place; without one, its checksum is computed again, or the field that does not fit gets a value that does.";
    SUPERBLOCK_FIELD: "ext4-superblock-field", AtRisk, "superblock",
        "A field of the superblock has a value that it cannot have.",
        "The field gets the value that follows from the rest of the image, or its default.";
    SUPERBLOCK_TIME: "ext4-superblock-time", Harmless, "superblock",
        "A time in the superblock is more than a day in the future.",
        "The time becomes now.";
    SUPERBLOCK_FREE_BLOCKS: "ext4-superblock-free-blocks", Harmless, "superblock",
        "The number of free blocks is not what the image has.",
        "The number is counted again.";
    SUPERBLOCK_FREE_INODES: "ext4-superblock-free-inodes", Harmless, "superblock",
        "The number of free inodes is not what the image has.",
        "The number is counted again.";
    SUPERBLOCK_FEATURE: "ext4-superblock-feature", AtRisk, "superblock",
        "The image uses something whose feature is off.",
        "The feature is turned on.";
    SUPERBLOCK_BACKUP: "ext4-superblock-backup", Harmless, "superblock backup",
        "A backup of the superblock is damaged, or describes another file system.",
        "The backup is written again from the primary superblock.";
    MMP: "ext4-mmp", AtRisk, "mmp block",
        "The block that guards against two mounts at once is damaged.",
        "The block is written again, as of a file system that is not mounted; without a place, the feature is turned off.";
    GROUP_CHECKSUM: "ext4-group-checksum", AtRisk, "group descriptor",
        "The checksum of a group descriptor does not match.",
        "What it says of unused inodes is compared with the inode table, and the checksum is computed again.";
    GROUP_PLACES: "ext4-group-places", Unusable, "group descriptor",
        "A group descriptor leads to bitmaps or an inode table that cannot be there.",
        "The places come from a backup of the descriptor, or are where mke2fs puts them.";
    GROUP_OVERLAP: "ext4-group-overlap", Unusable, "group descriptor",
        "Bitmaps, inode tables or descriptors of groups lie on each other.",
        "The places come from backups of the descriptors, or are where mke2fs puts them; a bitmap may move.";
    GROUP_FLAGS: "ext4-group-flags", Harmless, "group descriptor",
        "A descriptor says that parts of its group are not initialised, in a file system without that feature.",
        "The flags and the number of unused inodes are set right.";
    GROUP_UNUSED: "ext4-group-unused", AtRisk, "group descriptor",
        "A descriptor says that inodes were never used that are in use.",
        "The inodes of the group are looked through, and their number is set right.";
    GROUP_BACKUP: "ext4-group-backup", Harmless, "group descriptor backup",
        "A backup of a group descriptor has other places than the primary one.",
        "The backup is written again.";
    GROUP_FREE_BLOCKS: "ext4-group-free-blocks", Harmless, "group descriptor",
        "The number of free blocks of a group is not what it has.",
        "The number is counted again.";
    GROUP_FREE_INODES: "ext4-group-free-inodes", Harmless, "group descriptor",
        "The number of free inodes of a group is not what it has.",
        "The number is counted again.";
    GROUP_DIRECTORIES: "ext4-group-directories", Harmless, "group descriptor",
        "The number of directories of a group is not what it has.",
        "The number is counted again.";
    JOURNAL_INODE: "ext4-journal-inode", Unusable, "journal inode",
        "The journal's inode or its block map is damaged.",
        "The inode is written again from a copy of its map; without one, the journal is made anew, and what it held is lost.";
    JOURNAL_SUPERBLOCK: "ext4-journal-superblock", Unusable, "journal superblock",
        "The journal's superblock is damaged.",
        "The journal is made anew; what it held is lost.";
    JOURNAL_REPLAY: "ext4-journal-replay", AtRisk, "journal",
        "The journal holds changes that cannot be replayed; the image was checked as it lies.",
        "The transactions before the damage are replayed, and the journal is emptied.";
    JOURNAL_PENDING: "ext4-journal-pending", Harmless, "journal",
        "The journal holds transactions though the superblock does not call for recovery, or an error.",
        "The journal is emptied.";
    ORPHAN_LIST: "ext4-orphan-list", AtRisk, "orphan list",
        "The list of orphans leads to an inode that cannot be one.",
        "The list is cut there.";
    ORPHAN_FILE: "ext4-orphan-file", AtRisk, "orphan file",
        "The orphan file is damaged.",
        "Slots of the damaged block are kept if their inode is deleted and was never freed; else the whole file is written again.";
    ORPHAN_FILE_ENTRY: "ext4-orphan-file-entry", AtRisk, "orphan file",
        "The orphan file names an inode that cannot be an orphan.",
        "The slot is emptied.";
    ORPHAN_PRESENT: "ext4-orphan-present", Harmless, "superblock",
        "Whether the orphan file holds orphans is not as the superblock says.",
        "The mark is set right, and orphans are ended.";
    INODE_CHECKSUM: "ext4-inode-checksum", AtRisk, "inode",
        "The checksum of an inode does not match.",
        "The checksum is computed again if all fields are plausible; otherwise the inode is freed.";
    INODE_MODE: "ext4-inode-mode", Unusable, "inode",
        "The mode of an inode in use names no file type.",
        "The inode gets the type that its contents have; if they say nothing, it is freed, and its names are removed.";
    INODE_FIELD: "ext4-inode-field", Harmless, "inode",
        "A field of an inode has a value that it cannot have.",
        "The field is cleared, or becomes what the rest of the inode says.";
    INODE_FLAGS: "ext4-inode-flags", AtRisk, "inode",
        "An inode has a flag that its type or the features do not allow.",
        "The flag is cleared, if what the inode holds makes sense without.";
    INODE_DELETION_TIME: "ext4-inode-deletion-time", Harmless, "inode",
        "An inode in use has a time of deletion, or one that is free has none.",
        "The time is cleared or set; an inode with contents that nobody freed is taken for one without names.";
    INODE_SIZE: "ext4-inode-size", AtRisk, "inode",
        "The size of an inode does not agree with the blocks that it has.",
        "The size becomes the one that the blocks give.";
    INODE_BLOCKS: "ext4-inode-blocks", Harmless, "inode",
        "An inode says that it has another number of blocks than it has.",
        "The number is counted again.";
    INODE_LINKS: "ext4-inode-links", AtRisk, "inode",
        "The number of links of an inode is not that of its names.",
        "The number is set to what was counted.";
    INODE_UNATTACHED: "ext4-inode-unattached", AtRisk, "inode",
        "No name leads to an inode in use.",
        "A directory goes back to its parent if that is there, anything else to lost+found.";
    INODE_SPECIAL: "ext4-inode-special", AtRisk, "inode",
        "An inode of the file system itself is not what it must be.",
        "The inode is made anew; one that nothing uses is cleared.";
    SYMLINK: "ext4-symlink", AtRisk, "symbolic link",
        "The target of a symbolic link is not there as its size says.",
        "The size becomes that of the target that is there; without a target, the link is removed.";
    RESIZE_INODE: "ext4-resize-inode", Harmless, "resize inode",
        "The inode that keeps blocks for descriptors does not hold those it must.",
        "The inode is made anew; without room, the feature is turned off.";
    EXTENT_NODE: "ext4-extent-node", AtRisk, "extent tree node",
        "A node of an extent tree is damaged.",
        "The tree is built again of every entry that can be verified.";
    EXTENT_CHECKSUM: "ext4-extent-checksum", AtRisk, "extent tree node",
        "The checksum of a node of an extent tree does not match.",
        "The checksum is computed again if all entries are plausible.";
    EXTENT_PLACE: "ext4-extent-place", AtRisk, "extent tree node",
        "An extent or a node lies outside the file system.",
        "The entry is removed.";
    EXTENT_START: "ext4-extent-start", Harmless, "extent tree node",
        "A node starts at another block of the file than its parent says.",
        "The parent's entry is set right.";
    EXTENT_UNWRITTEN: "ext4-extent-unwritten", AtRisk, "extent tree node",
        "An extent that counts as never written belongs to an inode that cannot have one.",
        "The extent is marked as written.";
    EXTENT_CLUSTER: "ext4-extent-cluster", AtRisk, "extent tree node",
        "An extent does not lie in its cluster as the file's blocks do.",
        "The blocks are copied to a cluster of their own.";
    INDIRECT_PLACE: "ext4-indirect-place", AtRisk, "indirect block",
        "A pointer of a block map leads outside the file system.",
        "The block map is built anew without the pointer.";
    BLOCK_METADATA: "ext4-block-metadata", AtRisk, "inode",
        "An inode claims blocks of the file system's own structures.",
        "The inode loses the blocks.";
    BLOCK_SHARED: "ext4-block-shared", AtRisk, "inode",
        "Several inodes, or one twice, claim the same block.",
        "One keeps the block, and the others get copies, or lose it if nothing is free.";
    DIR_HOLE: "ext4-directory-hole", AtRisk, "directory",
        "A directory has no block at a place below its size.",
        "The directory is written anew without the hole.";
    DIR_BLOCK: "ext4-directory-block", AtRisk, "directory block",
        "The chain of entries of a directory block is broken.",
        "The entries that can be read are kept.";
    DIR_CHECKSUM: "ext4-directory-checksum", AtRisk, "directory block",
        "The checksum of a directory block does not match, or has no place.",
        "Entries that make sense are kept, and the checksum is computed again.";
    DIR_DOTS: "ext4-directory-dots", AtRisk, "directory block",
        "A directory does not start with \".\" and \"..\" as it must.",
        "The entries are made anew.";
    DIR_NAME: "ext4-directory-name", AtRisk, "directory entry",
        "An entry has a name that there cannot be.",
        "The entry gets a name that there can be.";
    DIR_DUPLICATE: "ext4-directory-duplicate", AtRisk, "directory entry",
        "A directory has two entries of one name.",
        "The second entry gets another name.";
    DIR_INODE: "ext4-directory-inode", AtRisk, "directory entry",
        "An entry leads to an inode that it cannot lead to.",
        "The entry is removed.";
    DIR_POLICY: "ext4-directory-policy", AtRisk, "directory block",
        "A name in an encrypted directory leads to an inode that is encrypted in another way, or not at all.",
        "The name is removed, and the inode goes to lost+found.";
    DIR_TYPE: "ext4-directory-type", Harmless, "directory entry",
        "An entry says another file type than the inode has.",
        "The type is set right.";
    DIR_PARENT: "ext4-directory-parent", AtRisk, "directory",
        "The entry \"..\" of a directory does not lead to its parent.",
        "The entry is set right.";
    DIR_NAMES: "ext4-directory-names", AtRisk, "directory",
        "A directory has several names.",
        "The name in the directory that its entry \"..\" leads to is kept, or else the first.";
    DIR_LOST_FOUND: "ext4-directory-lost-found", Harmless, "directory",
        "The root directory has no directory lost+found.",
        "The directory is made.";
    HTREE_ROOT: "ext4-htree-root", AtRisk, "directory index",
        "The root of a directory's index is damaged; names may not be found.",
        "The index is built anew.";
    HTREE_NODE: "ext4-htree-node", AtRisk, "directory index",
        "A node of a directory's index is damaged; names may not be found.",
        "The index is built anew.";
    HTREE_CHECKSUM: "ext4-htree-checksum", AtRisk, "directory index",
        "The checksum of a block of a directory's index does not match.",
        "The index is built anew.";
    HTREE_LEAF: "ext4-htree-leaf", AtRisk, "directory index",
        "A block of a hashed directory is not reached once by its index.",
        "The index is built anew.";
    HTREE_HASH: "ext4-htree-hash", AtRisk, "directory index",
        "A name lies in a block that the index does not look into for it.",
        "The index is built anew.";
    INLINE_DATA: "ext4-inline-data", AtRisk, "inline data",
        "The contents in an inode do not agree with its size or its attributes.",
        "What is there is kept, and the size is set to that.";
    XATTR_INODE: "ext4-xattr-inode", AtRisk, "extended attributes",
        "The attributes in an inode are damaged.",
        "The attributes that can be read are kept.";
    XATTR_BLOCK: "ext4-xattr-block", AtRisk, "extended attribute block",
        "A block of attributes is damaged, or not one.",
        "The attributes that can be read are kept; a block without any is given up.";
    XATTR_CHECKSUM: "ext4-xattr-checksum", AtRisk, "extended attribute block",
        "The checksum of a block of attributes does not match.",
        "The attributes that can be read are written anew.";
    XATTR_ENTRY: "ext4-xattr-entry", AtRisk, "extended attributes",
        "An attribute lies where it cannot, or twice.",
        "The attributes are written anew.";
    XATTR_HASH: "ext4-xattr-hash", Harmless, "extended attributes",
        "A hash of attributes does not match.",
        "The hash is computed again.";
    XATTR_REFERENCES: "ext4-xattr-references", AtRisk, "extended attribute block",
        "Another number of inodes shares a block of attributes than it says.",
        "The number is set to what was counted.";
    XATTR_VALUE: "ext4-xattr-value", AtRisk, "extended attribute inode",
        "An attribute's value is not in the inode that must hold it.",
        "The attribute is removed; if the value is there, its hash or size is set right.";
    XATTR_VALUE_REFERENCES: "ext4-xattr-value-references", Harmless, "extended attribute inode",
        "Another number of attributes refers to an inode that holds a value than it says.",
        "The number is set to what was counted; without any, the inode becomes a file in lost+found, or is freed if it is empty.";
    ACL: "ext4-acl", AtRisk, "access control list",
        "An access control list is damaged.",
        "The list is removed.";
    ENCRYPTION_CONTEXT: "ext4-encryption-context", AtRisk, "encryption context",
        "The attribute that says how an inode is encrypted is damaged, so that no key can open it.",
        "The inode is freed; what a damaged directory names goes to lost+found.";
    BLOCK_BITMAP_CHECKSUM: "ext4-block-bitmap-checksum", AtRisk, "block bitmap",
        "The checksum of a block bitmap does not match.",
        "The bitmap is built anew.";
    BLOCK_BITMAP_FREE: "ext4-block-bitmap-free", AtRisk, "block bitmap",
        "Blocks in use are marked as free.",
        "The bitmap is built anew.";
    BLOCK_BITMAP_USED: "ext4-block-bitmap-used", Harmless, "block bitmap",
        "Blocks that nobody uses are marked as in use.",
        "The bitmap is built anew.";
    BLOCK_BITMAP_PADDING: "ext4-block-bitmap-padding", Harmless, "block bitmap",
        "Bits past the last block of a group are not set.",
        "The bitmap is built anew.";
    INODE_BITMAP_CHECKSUM: "ext4-inode-bitmap-checksum", AtRisk, "inode bitmap",
        "The checksum of an inode bitmap does not match.",
        "The bitmap is built anew.";
    INODE_BITMAP_FREE: "ext4-inode-bitmap-free", AtRisk, "inode bitmap",
        "Inodes in use are marked as free.",
        "The bitmap is built anew.";
    INODE_BITMAP_USED: "ext4-inode-bitmap-used", Harmless, "inode bitmap",
        "Inodes that are free are marked as in use.",
        "The bitmap is built anew.";
    INODE_BITMAP_PADDING: "ext4-inode-bitmap-padding", Harmless, "inode bitmap",
        "Bits past the last inode of a group are not set.",
        "The bitmap is built anew.";
    QUOTA_FILE: "ext4-quota-file", AtRisk, "quota file",
        "A quota file is damaged.",
        "The file is made anew; limits that cannot be read are lost.";
    QUOTA_USAGE: "ext4-quota-usage", Harmless, "quota file",
        "What an owner uses is not what the quota file says.",
        "The usage is counted again.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names_of_their_own_and_sentences() {
        let mut names: Vec<_> = CODES.iter().map(|code| code.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CODES.len());
        for code in CODES {
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '-' || c == '4';
            assert!(code.name.starts_with("ext4-") && code.name.chars().all(is_plain), "{code:?}");
            assert!(code.meaning.ends_with('.') && code.repair.ends_with('.'), "{code:?}");
        }
    }
}
