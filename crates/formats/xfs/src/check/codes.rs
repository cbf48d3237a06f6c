//! The catalogue of all findings.

use vfs::check::{Code, Severity};

macro_rules! catalogue {
    ($($constant:ident: $severity:ident $name:literal, $structure:literal, $meaning:literal, $repair:expr;)*) => {
        $(pub(crate) const $constant: &Code = &Code {
            name: $name,
            severity: Severity::$severity,
            structure: $structure,
            meaning: $meaning,
            repair: $repair,
        };)*

        /// All codes except those of trees.
        const OTHERS: &[&Code] = &[$($constant),*];
    };
}

const REBUILD: &str = "The tree is rebuilt from the structures that it indexes.";

const REBUILD_GROUPS: &str = "The tree is rebuilt from the extents of files.";

const REBUILD_REALTIME: &str = "The bitmap and the summary are rebuilt from the extents of files.";

/// Codes of the blocks of one kind of tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeCodes {
    pub(crate) checksum: &'static Code,
    pub(crate) block: &'static Code,
    pub(crate) links: &'static Code,
    pub(crate) keys: &'static Code,
    pub(crate) records: &'static Code,
}

impl TreeCodes {
    /// Returns all of them.
    pub(crate) const fn all(self) -> [&'static Code; 5] {
        [self.checksum, self.block, self.links, self.keys, self.records]
    }
}

macro_rules! tree_codes {
    ($($constant:ident: $all:ident $prefix:literal $structure:literal $severity:ident $repair:ident;)*) => {
        $(pub(crate) const $constant: TreeCodes = TreeCodes {
            checksum: &Code {
                name: concat!("xfs-", $prefix, "-checksum"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "The checksum of a tree block is wrong.",
                repair: $repair,
            },
            block: &Code {
                name: concat!("xfs-", $prefix, "-block"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "A tree block has an invalid header, or the pointer to it is invalid.",
                repair: $repair,
            },
            links: &Code {
                name: concat!("xfs-", $prefix, "-siblings"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "A tree block has wrong sibling pointers.",
                repair: $repair,
            },
            keys: &Code {
                name: concat!("xfs-", $prefix, "-keys"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "A node has a key that does not match the block below it.",
                repair: $repair,
            },
            records: &Code {
                name: concat!("xfs-", $prefix, "-records"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "Records of the tree are invalid or out of order, or a block has too few records.",
                repair: $repair,
            },
        };
        const $all: [&Code; 5] =
            [$constant.checksum, $constant.block, $constant.links, $constant.keys, $constant.records];
        )*
        /// Codes of the blocks of trees, by tree.
        const TREES: &[&[&Code; 5]] = &[$(&$all),*];
    };
}

tree_codes! {
    BNOBT: BNOBT_ALL "bnobt" "bnobt" AtRisk REBUILD;
    CNTBT: CNTBT_ALL "cntbt" "cntbt" AtRisk REBUILD;
    RMAPBT: RMAPBT_ALL "rmapbt" "rmapbt" AtRisk REBUILD;
    REFCOUNTBT: REFCOUNTBT_ALL "refcountbt" "refcountbt" AtRisk REBUILD;
    INOBT: INOBT_ALL "inobt" "inobt" AtRisk REBUILD;
    FINOBT: FINOBT_ALL "finobt" "finobt" AtRisk REBUILD;
    BMBT: BMBT_ALL "bmbt" "bmbt" AtRisk REBUILD;
    RTRMAPBT: RTRMAPBT_ALL "rtrmapbt" "rtrmapbt" AtRisk REBUILD_GROUPS;
    RTREFCOUNTBT: RTREFCOUNTBT_ALL "rtrefcountbt" "rtrefcountbt" AtRisk REBUILD_GROUPS;
}

catalogue! {
    IO: AtRisk "xfs-io", "device",
        "The device cannot be read.",
        "None: nothing is written. Copy the image to a healthy device first, or retry.";
    SUPERBLOCK: Unusable "xfs-superblock", "superblock",
        "The superblock is invalid.",
        "The fields that all superblocks share are restored from the copies. If nothing else is valid, the whole \
         superblock is.";
    SUPERBLOCK_CHECKSUM: AtRisk "xfs-superblock-checksum", "superblock",
        "The checksum of the superblock is wrong.",
        "Fields that most copies contradict are restored from the copies, and the checksum is recomputed.";
    SUPERBLOCK_FIELD: AtRisk "xfs-superblock-field", "superblock",
        "A field of the superblock has an invalid value.",
        "The field is set to the value in most copies, or to the value derived from the image.";
    SUPERBLOCK_COPY: Harmless "xfs-superblock-copy", "superblock",
        "A copy of the superblock is damaged or differs from the primary superblock.",
        "The copy is rewritten, unless most other copies also differ from the primary.";
    SUPERBLOCK_REST: Harmless "xfs-superblock-rest", "superblock",
        "The rest of the superblock's sector is not zero.",
        "The rest of the sector is zeroed.";
    SUPERBLOCK_LOG_BITS: Harmless "xfs-superblock-log-bits", "superblock",
        "The superblock has log feature bits, but the log is empty.",
        "The bits are cleared.";
    SUPERBLOCK_COUNTS: Harmless "xfs-superblock-counts", "superblock",
        "A counter of the superblock is wrong.",
        "The counter is recomputed.";
    NEEDS_REPAIR: AtRisk "xfs-needs-repair", "superblock",
        "The image is marked as needing repair.",
        "The mark is cleared after everything else is repaired.";
    LOG: AtRisk "xfs-log", "log",
        "The log must be replayed, but the replay fails.",
        "The valid part of the log is replayed. Otherwise the log is emptied, and the affected structures are \
         repaired.";
    LSN: AtRisk "xfs-lsn", "log",
        "A structure has an LSN ahead of the head of the log, so a replay would skip it.",
        "The log is restarted after that LSN. An LSN that no log can reach is reset in the structure.";
    AG_CHECKSUM: AtRisk "xfs-ag-checksum", "group header",
        "The checksum of an allocation group header is wrong.",
        "The header and the trees that it points to are rebuilt.";
    AGF: Unusable "xfs-agf", "AGF",
        "The AGF is invalid, so the free space of the group is unknown.",
        "The AGF and the space trees are rebuilt.";
    AGI: Unusable "xfs-agi", "AGI",
        "The AGI is invalid, so the inodes of the group are unknown.",
        "The AGI and the inode trees are rebuilt from the inode chunks found.";
    AGFL: AtRisk "xfs-agfl", "AGFL",
        "The list of free blocks for trees is damaged.",
        "The list is rebuilt together with the AGF and the space trees.";
    AGF_COUNTS: Harmless "xfs-agf-counts", "AGF",
        "A counter of the AGF is wrong.",
        "The AGF and the space trees are rebuilt.";
    AGI_COUNTS: Harmless "xfs-agi-counts", "AGI",
        "A counter of the AGI is wrong.",
        "The AGI and the inode trees are rebuilt.";
    CNTBT_DIFFERS: AtRisk "xfs-cntbt-differs", "cntbt",
        "The free space tree by size and the one by block have different records.",
        REBUILD;
    FINOBT_DIFFERS: AtRisk "xfs-finobt-differs", "finobt",
        "The tree of chunks with free inodes does not match the tree of all chunks.",
        REBUILD;
    RMAP_MISSING: AtRisk "xfs-rmap-missing", "rmapbt",
        "The reverse map lacks an owner of blocks.",
        REBUILD;
    RMAP_STALE: AtRisk "xfs-rmap-stale", "rmapbt",
        "The reverse map lists an owner that does not own the blocks.",
        REBUILD;
    REFERENCES: AtRisk "xfs-refcount-differs", "refcountbt",
        "The reference count tree has a wrong reference count for shared blocks.",
        REBUILD;
    SPACE_LOST: Harmless "xfs-space-lost", "free space",
        "Blocks are neither free nor in use.",
        "The blocks are freed.";
    SPACE_FREE_USED: AtRisk "xfs-space-free-used", "free space",
        "Blocks are both free and in use.",
        "The blocks are removed from the free space trees.";
    SPACE_TWICE: AtRisk "xfs-space-twice", "free space",
        "Blocks have two owners.",
        "The owner that the reverse map confirms keeps the blocks. The other gets a copy.";
    INODE_CHECKSUM: AtRisk "xfs-inode-checksum", "inode",
        "The checksum of an inode is wrong.",
        "Invalid fields are corrected, and the checksum is recomputed.";
    INODE: Unusable "xfs-inode", "inode",
        "An inode is invalid.",
        "The readable parts are kept, and more is restored from the reverse map. Otherwise the inode is cleared.";
    INODE_FREE: AtRisk "xfs-inode-free", "inode",
        "A free inode has fields that only inodes in use have.",
        "The inode is marked as in use if a directory entry refers to it. Otherwise it is cleared.";
    INODE_NOT_USED: AtRisk "xfs-inode-not-used", "inode",
        "The inode tree marks a free inode as in use.",
        "The inode is marked as free.";
    INODE_FIELD: AtRisk "xfs-inode-field", "inode",
        "A field of an inode has an invalid value.",
        "The field is set to a value that matches the rest of the inode.";
    INODE_COUNTS: Harmless "xfs-inode-counts", "inode",
        "The extent count or block count of an inode is wrong.",
        "The count is recomputed.";
    INODE_MAP: AtRisk "xfs-inode-map", "inode",
        "The extents of an inode contradict each other or its flags.",
        "The contradicting extents are removed from the map, or the flag is set.";
    INODE_LINKS: Harmless "xfs-inode-links", "inode",
        "The link count of an inode is wrong.",
        "The link count is corrected.";
    INODE_LOST: AtRisk "xfs-inode-lost", "inode",
        "An inode is in use but has no directory entry.",
        "The inode is reattached where its parent pointers say, or else to lost+found.";
    UNLINKED: AtRisk "xfs-unlinked", "AGI",
        "A list of unlinked inodes is damaged.",
        "The lists of the group are rebuilt from the inodes that can be reached from them.";
    UNLINKED_LEFT: Harmless "xfs-unlinked-left", "AGI",
        "The lists of unlinked inodes are not empty, but the log is clean, so no mount frees the inodes.",
        "The inodes are freed, as a mount does after a crash.";
    ROOT: Unusable "xfs-root", "inode",
        "The root directory is not a directory.",
        "A new root directory is created, and everything else is reattached to it.";
    METADIR_ROOT: Unusable "xfs-metadir-root", "metadata directory",
        "The root of the metadata directory is not a directory of metadata.",
        "A new root is created, and the metadata files are reattached to it.";
    METADIR_FLAG: AtRisk "xfs-metadir-flag", "metadata directory",
        "An inode has the metadata flag, but is not in the metadata directory, or is in it without the flag.",
        "The flag is set if all names of the inode are in the metadata directory, and cleared otherwise.";
    METADIR_FILE: AtRisk "xfs-metadir-file", "metadata directory",
        "A file in the metadata directory has not the type that its path requires.",
        "The type is set. A file that kernels do not know is removed.";
    SYMLINK: AtRisk "xfs-symlink", "symbolic link",
        "The target of a symbolic link is damaged.",
        "The readable part of the target is kept. A link without a target is removed with its directory entries.";
    SYMLINK_CHECKSUM: AtRisk "xfs-symlink-checksum", "symbolic link",
        "The checksum of the target of a symbolic link is wrong.",
        "The readable part of the target is rewritten.";
    DIR_SHORT: AtRisk "xfs-dir-short", "directory",
        "A shortform directory, which is stored in its inode, is damaged.",
        "Every readable entry is kept.";
    DIR_CHECKSUM: AtRisk "xfs-dir-checksum", "directory",
        "The checksum of a directory block is wrong.",
        "Every readable entry is kept, and the directory is rebuilt.";
    DIR_DATA: AtRisk "xfs-dir-data", "directory",
        "A data block of a directory is damaged.",
        "Every readable entry is kept, and the directory is rebuilt.";
    DIR_LEAF: AtRisk "xfs-dir-leaf", "directory",
        "The hash index of a directory is damaged.",
        "The directory is rebuilt from its entries.";
    DIR_FREE: AtRisk "xfs-dir-free", "directory",
        "The free space index of a directory is damaged.",
        "The directory is rebuilt from its entries.";
    DIR_HASH: AtRisk "xfs-dir-hash", "directory",
        "The hash index of a directory has other entries than its data blocks.",
        "The directory is rebuilt from its entries.";
    DIR_BESTS: AtRisk "xfs-dir-bests", "directory",
        "The free space index of a directory does not match its data blocks.",
        "The directory is rebuilt from its entries.";
    DIR_MAP: AtRisk "xfs-dir-map", "directory",
        "The blocks or the size of a directory are invalid for a directory.",
        "Every readable entry is kept, and the directory is rebuilt.";
    DIR_DOT: AtRisk "xfs-dir-dot", "directory",
        "The entry `.` of a directory is missing or refers to another inode.",
        "The entry is recreated.";
    DIR_DOT_DOT: AtRisk "xfs-dir-dotdot", "directory",
        "The entry `..` of a directory is missing or does not refer to the parent.",
        "The entry is recreated.";
    DIR_NAME: AtRisk "xfs-dir-name", "directory",
        "A directory entry has an invalid name.",
        "The entry is renamed.";
    DIR_TWICE: AtRisk "xfs-dir-twice", "directory",
        "A directory has two entries with the same name.",
        "One of the entries is renamed.";
    DIR_FTYPE: Harmless "xfs-dir-ftype", "directory",
        "The file type of a directory entry differs from that of the inode.",
        "The type is corrected.";
    DIR_DANGLING: AtRisk "xfs-dir-dangling", "directory",
        "A directory entry refers to an inode that is not in use.",
        "The entry is removed.";
    DIR_LOOP: AtRisk "xfs-dir-loop", "directory",
        "A directory is its own ancestor and is not connected to the root.",
        "One directory of the loop is reattached where its parent pointer says, or else to lost+found.";
    ATTR: AtRisk "xfs-attr", "attributes",
        "Extended attributes are damaged.",
        "Every readable attribute is kept.";
    ATTR_CHECKSUM: AtRisk "xfs-attr-checksum", "attributes",
        "The checksum of an extended attribute block is wrong.",
        "Every readable attribute is kept and rewritten.";
    ATTR_HASH: AtRisk "xfs-attr-hash", "attributes",
        "An extended attribute is indexed under a wrong hash.",
        "The attributes are rewritten.";
    ATTR_ACL: AtRisk "xfs-attr-acl", "attributes",
        "An access control list is invalid.",
        "The list is removed.";
    PARENT: AtRisk "xfs-parent", "parent pointer",
        "A parent pointer is invalid or does not match a directory entry.",
        "The parent pointers are recreated from the directory entries.";
    PARENT_MISSING: AtRisk "xfs-parent-missing", "parent pointer",
        "A directory entry has no parent pointer.",
        "The parent pointer is created from the entry.";
    PARENT_STALE: AtRisk "xfs-parent-stale", "parent pointer",
        "A parent pointer has no matching directory entry.",
        "The parent pointer is removed, unless it gives the location of an unattached inode.";
    REALTIME_FILE: AtRisk "xfs-realtime-file", "realtime section",
        "The realtime bitmap or summary cannot be read, or has a wrong size.",
        "The file is made again.";
    REALTIME_HEADER: AtRisk "xfs-realtime-header", "realtime section",
        "A block of the realtime bitmap or summary has a wrong header or checksum.",
        REBUILD_REALTIME;
    REALTIME_BITMAP: AtRisk "xfs-realtime-bitmap", "realtime section",
        "The realtime bitmap marks extents as free that are in use.",
        REBUILD_REALTIME;
    REALTIME_LOST: Harmless "xfs-realtime-lost", "realtime section",
        "Realtime extents are neither free in the bitmap nor in use.",
        REBUILD_REALTIME;
    REALTIME_SUMMARY: AtRisk "xfs-realtime-summary", "realtime section",
        "The realtime summary has a wrong count of free runs.",
        REBUILD_REALTIME;
    REALTIME_TWICE: AtRisk "xfs-realtime-twice", "realtime section",
        "A realtime extent has two owners.",
        "Written blocks become shared if the image can share them. Otherwise one file loses the extent.";
    REALTIME_ALIGNMENT: AtRisk "xfs-realtime-alignment", "realtime section",
        "A file maps only a part of a realtime extent, or at an offset that is not aligned.",
        "Incomplete and misaligned extents are removed from the file.";
    REALTIME_SUPERBLOCK: AtRisk "xfs-realtime-superblock", "realtime section",
        "The superblock of the realtime device is damaged or differs from that of the image.",
        "It is rewritten.";
    REALTIME_RMAP: AtRisk "xfs-realtime-rmap", "rtrmapbt",
        "The reverse map of a realtime group differs from the extents of files.",
        REBUILD_GROUPS;
    REALTIME_REFERENCES: AtRisk "xfs-realtime-refcount", "rtrefcountbt",
        "A realtime group has wrong reference counts of shared blocks.",
        REBUILD_GROUPS;
    QUOTA: AtRisk "xfs-quota", "quota",
        "A quota file is damaged.",
        "Invalid records are rewritten, with their limits if these can be read, and usage is counted again.";
    QUOTA_COUNTS: Harmless "xfs-quota-counts", "quota",
        "A quota record has a wrong usage count.",
        "Usage is counted again. In version 4, quotas are marked for a quota check at the next mount.";
}

const LEN: usize = OTHERS.len() + TREES.len() * 5;
const ALL: [&Code; LEN] = {
    let mut all = [OTHERS[0]; LEN];
    let mut at = 0;
    while at < OTHERS.len() {
        all[at] = OTHERS[at];
        at += 1;
    }
    let mut tree = 0;
    while tree < TREES.len() {
        let mut nth = 0;
        while nth < 5 {
            all[at] = TREES[tree][nth];
            at += 1;
            nth += 1;
        }
        tree += 1;
    }
    all
};

/// All that [`check`](super::check()) can find.
pub const CODES: &[&Code] = &ALL;
