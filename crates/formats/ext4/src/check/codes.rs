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
        "The device cannot read a block that the check needs.",
        "None: nothing is written. Copy the image to a healthy device first, or retry.";
    SUPERBLOCK: "ext4-superblock", Unusable, "superblock",
        "The primary superblock is damaged.",
        "It is restored from a valid backup. Without one, its checksum is recomputed, or the invalid field is set to a valid value.";
    SUPERBLOCK_FIELD: "ext4-superblock-field", AtRisk, "superblock",
        "A field of the superblock has an invalid value.",
        "The field is set to the value derived from the rest of the image, or to its default.";
    SUPERBLOCK_TIME: "ext4-superblock-time", Harmless, "superblock",
        "A time in the superblock is more than a day in the future.",
        "The time is set to the current time.";
    SUPERBLOCK_FREE_BLOCKS: "ext4-superblock-free-blocks", Harmless, "superblock",
        "The free block count of the superblock is wrong.",
        "The count is recomputed.";
    SUPERBLOCK_FREE_INODES: "ext4-superblock-free-inodes", Harmless, "superblock",
        "The free inode count of the superblock is wrong.",
        "The count is recomputed.";
    SUPERBLOCK_FEATURE: "ext4-superblock-feature", AtRisk, "superblock",
        "The image uses a feature whose flag is not set.",
        "The feature flag is set.";
    SUPERBLOCK_BACKUP: "ext4-superblock-backup", Harmless, "superblock backup",
        "A backup superblock is damaged or describes another file system.",
        "The backup is rewritten from the primary superblock.";
    MMP: "ext4-mmp", AtRisk, "mmp block",
        "The MMP block, which prevents multiple mounts, is damaged.",
        "The block is rewritten in the unmounted state. Without a valid location, the feature is turned off.";
    GROUP_CHECKSUM: "ext4-group-checksum", AtRisk, "group descriptor",
        "The checksum of a group descriptor is wrong.",
        "The unused inode count is verified against the inode table, and the checksum is recomputed.";
    GROUP_PLACES: "ext4-group-places", Unusable, "group descriptor",
        "A group descriptor has an invalid location for a bitmap or the inode table.",
        "The locations are taken from a backup descriptor, or from the layout that mke2fs uses.";
    GROUP_OVERLAP: "ext4-group-overlap", Unusable, "group descriptor",
        "Bitmaps, inode tables or group descriptors overlap.",
        "The locations are taken from backup descriptors, or from the layout that mke2fs uses. A bitmap may be moved.";
    GROUP_FLAGS: "ext4-group-flags", Harmless, "group descriptor",
        "A group descriptor has a flag for uninitialised metadata, but the file system lacks that feature.",
        "The flags and the unused inode count are corrected.";
    GROUP_UNUSED: "ext4-group-unused", AtRisk, "group descriptor",
        "A group descriptor counts inodes in use as never used.",
        "The inode table of the group is scanned, and the count is corrected.";
    GROUP_BACKUP: "ext4-group-backup", Harmless, "group descriptor backup",
        "A backup group descriptor has other locations than the primary descriptor.",
        "The backup is rewritten.";
    GROUP_FREE_BLOCKS: "ext4-group-free-blocks", Harmless, "group descriptor",
        "The free block count of a group is wrong.",
        "The count is recomputed.";
    GROUP_FREE_INODES: "ext4-group-free-inodes", Harmless, "group descriptor",
        "The free inode count of a group is wrong.",
        "The count is recomputed.";
    GROUP_DIRECTORIES: "ext4-group-directories", Harmless, "group descriptor",
        "The directory count of a group is wrong.",
        "The count is recomputed.";
    JOURNAL_INODE: "ext4-journal-inode", Unusable, "journal inode",
        "The journal inode or its block map is damaged.",
        "The inode is restored from the copy of its block map. Without a copy, a new journal is created, and the contents of the old one are lost.";
    JOURNAL_SUPERBLOCK: "ext4-journal-superblock", Unusable, "journal superblock",
        "The journal superblock is damaged.",
        "A new journal is created. The contents of the old one are lost.";
    JOURNAL_REPLAY: "ext4-journal-replay", AtRisk, "journal",
        "The journal contains transactions that cannot be replayed. The image was checked without them.",
        "The transactions before the damage are replayed, and the journal is emptied.";
    JOURNAL_PENDING: "ext4-journal-pending", Harmless, "journal",
        "The journal contains transactions or an error code, but the superblock does not request recovery.",
        "The journal is emptied.";
    ORPHAN_LIST: "ext4-orphan-list", AtRisk, "orphan list",
        "The orphan list leads to an inode that cannot be an orphan.",
        "The list is cut at that inode.";
    ORPHAN_FILE: "ext4-orphan-file", AtRisk, "orphan file",
        "The orphan file is damaged.",
        "Slots of the damaged block are kept if their inode is deleted but not yet freed. Otherwise the whole file is rewritten.";
    ORPHAN_FILE_ENTRY: "ext4-orphan-file-entry", AtRisk, "orphan file",
        "The orphan file lists an inode that cannot be an orphan.",
        "The slot is cleared.";
    ORPHAN_PRESENT: "ext4-orphan-present", Harmless, "superblock",
        "The superblock's orphan_present flag does not match the orphan file.",
        "The flag is corrected, and orphans are freed or truncated.";
    INODE_CHECKSUM: "ext4-inode-checksum", AtRisk, "inode",
        "The checksum of an inode is wrong.",
        "The checksum is recomputed if all fields are plausible. Otherwise the inode is freed.";
    INODE_MODE: "ext4-inode-mode", Unusable, "inode",
        "The mode of an inode in use has no valid file type.",
        "The type is derived from the contents of the inode. If that is impossible, the inode is freed, and its directory entries are removed.";
    INODE_FIELD: "ext4-inode-field", Harmless, "inode",
        "A field of an inode has an invalid value.",
        "The field is cleared, or set to the value derived from the rest of the inode.";
    INODE_FLAGS: "ext4-inode-flags", AtRisk, "inode",
        "An inode has a flag that its type or the features do not allow.",
        "The flag is cleared if the contents are valid without it.";
    INODE_DELETION_TIME: "ext4-inode-deletion-time", Harmless, "inode",
        "An inode in use has a deletion time, or a free inode has none.",
        "The time is cleared or set. An inode with contents that was never freed is treated as unattached.";
    INODE_SIZE: "ext4-inode-size", AtRisk, "inode",
        "The size of an inode does not match its blocks.",
        "The size is set to the one derived from the blocks.";
    INODE_BLOCKS: "ext4-inode-blocks", Harmless, "inode",
        "The block count of an inode is wrong.",
        "The count is recomputed.";
    INODE_LINKS: "ext4-inode-links", AtRisk, "inode",
        "The link count of an inode differs from its number of directory entries.",
        "The link count is corrected.";
    INODE_UNATTACHED: "ext4-inode-unattached", AtRisk, "inode",
        "An inode is in use but has no directory entry.",
        "A directory is reattached to its parent if the parent exists. Any other inode goes to lost+found.";
    INODE_SPECIAL: "ext4-inode-special", AtRisk, "inode",
        "A reserved inode of the file system is invalid.",
        "The inode is recreated. An unused one is cleared.";
    SYMLINK: "ext4-symlink", AtRisk, "symbolic link",
        "The target of a symbolic link does not match the link's size.",
        "The size is set to that of the stored target. A link without a target is removed.";
    RESIZE_INODE: "ext4-resize-inode", Harmless, "resize inode",
        "The resize inode does not map the reserved descriptor blocks.",
        "The inode is recreated. Without free space for it, the feature is turned off.";
    EXTENT_NODE: "ext4-extent-node", AtRisk, "extent tree node",
        "A node of an extent tree is damaged.",
        "The tree is rebuilt from every entry that can be verified.";
    EXTENT_CHECKSUM: "ext4-extent-checksum", AtRisk, "extent tree node",
        "The checksum of an extent tree node is wrong.",
        "The checksum is recomputed if all entries are plausible.";
    EXTENT_PLACE: "ext4-extent-place", AtRisk, "extent tree node",
        "An extent or an extent tree node is outside the file system.",
        "The entry is removed.";
    EXTENT_START: "ext4-extent-start", Harmless, "extent tree node",
        "An extent tree node starts at another file block than its parent's entry.",
        "The parent's entry is corrected.";
    EXTENT_UNWRITTEN: "ext4-extent-unwritten", AtRisk, "extent tree node",
        "An inode that must not have unwritten extents has one.",
        "The extent is marked as written.";
    EXTENT_CLUSTER: "ext4-extent-cluster", AtRisk, "extent tree node",
        "An extent is not aligned to its cluster in the same way as the file's blocks.",
        "The blocks are copied to a separate cluster.";
    INDIRECT_PLACE: "ext4-indirect-place", AtRisk, "indirect block",
        "A pointer of an indirect block map is outside the file system.",
        "The block map is rebuilt without the pointer.";
    BLOCK_METADATA: "ext4-block-metadata", AtRisk, "inode",
        "An inode claims blocks of file system metadata.",
        "The blocks are removed from the inode.";
    BLOCK_SHARED: "ext4-block-shared", AtRisk, "inode",
        "Several inodes, or one inode twice, claim the same block.",
        "One owner keeps the block. The others get copies, or lose the block if no space is free.";
    DIR_HOLE: "ext4-directory-hole", AtRisk, "directory",
        "A directory has a hole below its size.",
        "The directory is rewritten without the hole.";
    DIR_BLOCK: "ext4-directory-block", AtRisk, "directory block",
        "The chain of entries of a directory block is broken.",
        "The readable entries are kept.";
    DIR_CHECKSUM: "ext4-directory-checksum", AtRisk, "directory block",
        "The checksum of a directory block is wrong, or the checksum entry is missing.",
        "Plausible entries are kept, and the checksum is recomputed.";
    DIR_DOTS: "ext4-directory-dots", AtRisk, "directory block",
        "A directory does not start with the entries \".\" and \"..\".",
        "The entries are recreated.";
    DIR_NAME: "ext4-directory-name", AtRisk, "directory entry",
        "A directory entry has an invalid name.",
        "The entry is renamed.";
    DIR_DUPLICATE: "ext4-directory-duplicate", AtRisk, "directory entry",
        "A directory has two entries with the same name.",
        "The second entry is renamed.";
    DIR_INODE: "ext4-directory-inode", AtRisk, "directory entry",
        "A directory entry refers to an invalid inode.",
        "The entry is removed.";
    DIR_POLICY: "ext4-directory-policy", AtRisk, "directory block",
        "An entry of an encrypted directory refers to an inode that is not encrypted or has another encryption policy.",
        "The entry is removed, and the inode goes to lost+found.";
    DIR_TYPE: "ext4-directory-type", Harmless, "directory entry",
        "The file type of a directory entry differs from that of the inode.",
        "The type is corrected.";
    DIR_PARENT: "ext4-directory-parent", AtRisk, "directory",
        "The entry \"..\" of a directory does not refer to its parent.",
        "The entry is corrected.";
    DIR_NAMES: "ext4-directory-names", AtRisk, "directory",
        "A directory has several directory entries.",
        "The entry in the directory that \"..\" refers to is kept, or else the first one.";
    DIR_LOST_FOUND: "ext4-directory-lost-found", Harmless, "directory",
        "The root directory has no directory lost+found.",
        "The directory is created.";
    HTREE_ROOT: "ext4-htree-root", AtRisk, "directory index",
        "The root of a directory index is damaged; lookups may miss entries.",
        "The index is rebuilt.";
    HTREE_NODE: "ext4-htree-node", AtRisk, "directory index",
        "A node of a directory index is damaged; lookups may miss entries.",
        "The index is rebuilt.";
    HTREE_CHECKSUM: "ext4-htree-checksum", AtRisk, "directory index",
        "The checksum of a directory index block is wrong.",
        "The index is rebuilt.";
    HTREE_LEAF: "ext4-htree-leaf", AtRisk, "directory index",
        "The directory index does not refer to a leaf block exactly once.",
        "The index is rebuilt.";
    HTREE_HASH: "ext4-htree-hash", AtRisk, "directory index",
        "An entry is in a leaf block outside the hash range of its name.",
        "The index is rebuilt.";
    INLINE_DATA: "ext4-inline-data", AtRisk, "inline data",
        "The inline data of an inode does not match its size or its attributes.",
        "The stored data is kept, and the size is set to its length.";
    XATTR_INODE: "ext4-xattr-inode", AtRisk, "extended attributes",
        "The extended attributes in an inode are damaged.",
        "The readable attributes are kept.";
    XATTR_BLOCK: "ext4-xattr-block", AtRisk, "extended attribute block",
        "An extended attribute block is damaged or is not an attribute block.",
        "The readable attributes are kept. A block without any is freed.";
    XATTR_CHECKSUM: "ext4-xattr-checksum", AtRisk, "extended attribute block",
        "The checksum of an extended attribute block is wrong.",
        "The readable attributes are rewritten.";
    XATTR_ENTRY: "ext4-xattr-entry", AtRisk, "extended attributes",
        "An extended attribute is misplaced or exists twice.",
        "The attributes are rewritten.";
    XATTR_HASH: "ext4-xattr-hash", Harmless, "extended attributes",
        "A hash of extended attributes is wrong.",
        "The hash is recomputed.";
    XATTR_REFERENCES: "ext4-xattr-references", AtRisk, "extended attribute block",
        "The reference count of an extended attribute block is wrong.",
        "The reference count is corrected.";
    XATTR_VALUE: "ext4-xattr-value", AtRisk, "extended attribute inode",
        "The inode that an extended attribute refers to does not contain the attribute's value.",
        "The attribute is removed. If the value exists, its hash or size is corrected.";
    XATTR_VALUE_REFERENCES: "ext4-xattr-value-references", Harmless, "extended attribute inode",
        "The reference count of an inode that stores an attribute value is wrong.",
        "The reference count is corrected. Without references, the inode becomes a file in lost+found, or is freed if it is empty.";
    ACL: "ext4-acl", AtRisk, "access control list",
        "An access control list is damaged.",
        "The list is removed.";
    ENCRYPTION_CONTEXT: "ext4-encryption-context", AtRisk, "encryption context",
        "The encryption context of an inode is damaged, and no key can decrypt the inode.",
        "The inode is freed. The entries of a damaged directory go to lost+found.";
    BLOCK_BITMAP_CHECKSUM: "ext4-block-bitmap-checksum", AtRisk, "block bitmap",
        "The checksum of a block bitmap is wrong.",
        "The bitmap is rebuilt.";
    BLOCK_BITMAP_FREE: "ext4-block-bitmap-free", AtRisk, "block bitmap",
        "Blocks in use are marked as free.",
        "The bitmap is rebuilt.";
    BLOCK_BITMAP_USED: "ext4-block-bitmap-used", Harmless, "block bitmap",
        "Unused blocks are marked as in use.",
        "The bitmap is rebuilt.";
    BLOCK_BITMAP_PADDING: "ext4-block-bitmap-padding", Harmless, "block bitmap",
        "Bits past the last block of a group are not set.",
        "The bitmap is rebuilt.";
    INODE_BITMAP_CHECKSUM: "ext4-inode-bitmap-checksum", AtRisk, "inode bitmap",
        "The checksum of an inode bitmap is wrong.",
        "The bitmap is rebuilt.";
    INODE_BITMAP_FREE: "ext4-inode-bitmap-free", AtRisk, "inode bitmap",
        "Inodes in use are marked as free.",
        "The bitmap is rebuilt.";
    INODE_BITMAP_USED: "ext4-inode-bitmap-used", Harmless, "inode bitmap",
        "Free inodes are marked as in use.",
        "The bitmap is rebuilt.";
    INODE_BITMAP_PADDING: "ext4-inode-bitmap-padding", Harmless, "inode bitmap",
        "Bits past the last inode of a group are not set.",
        "The bitmap is rebuilt.";
    QUOTA_FILE: "ext4-quota-file", AtRisk, "quota file",
        "A quota file is damaged.",
        "The file is recreated. Limits that cannot be read are lost.";
    QUOTA_USAGE: "ext4-quota-usage", Harmless, "quota file",
        "The usage recorded in a quota file differs from the actual usage of its owner.",
        "The usage is recomputed.";
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
