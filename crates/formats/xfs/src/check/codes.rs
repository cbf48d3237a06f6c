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

const REBUILD: &str = "The tree is built anew from what it indexes.";

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
    ($($constant:ident: $all:ident $prefix:literal $structure:literal $severity:ident;)*) => {
        $(pub(crate) const $constant: TreeCodes = TreeCodes {
            checksum: &Code {
                name: concat!("xfs-", $prefix, "-checksum"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "The checksum of a block of the tree does not match.",
                repair: REBUILD,
            },
            block: &Code {
                name: concat!("xfs-", $prefix, "-block"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "A block of the tree is none: its header or the pointer to it cannot be.",
                repair: REBUILD,
            },
            links: &Code {
                name: concat!("xfs-", $prefix, "-siblings"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "A block of the tree names other neighbours than it has.",
                repair: REBUILD,
            },
            keys: &Code {
                name: concat!("xfs-", $prefix, "-keys"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "A node has another key than the block below it calls for.",
                repair: REBUILD,
            },
            records: &Code {
                name: concat!("xfs-", $prefix, "-records"),
                severity: Severity::$severity,
                structure: $structure,
                meaning: "Records of the tree cannot be, are out of order, or are too few in a block.",
                repair: REBUILD,
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
    BNOBT: BNOBT_ALL "bnobt" "bnobt" AtRisk;
    CNTBT: CNTBT_ALL "cntbt" "cntbt" AtRisk;
    RMAPBT: RMAPBT_ALL "rmapbt" "rmapbt" AtRisk;
    REFCOUNTBT: REFCOUNTBT_ALL "refcountbt" "refcountbt" AtRisk;
    INOBT: INOBT_ALL "inobt" "inobt" AtRisk;
    FINOBT: FINOBT_ALL "finobt" "finobt" AtRisk;
    BMBT: BMBT_ALL "bmbt" "bmbt" AtRisk;
}

catalogue! {
    IO: AtRisk "xfs-io", "device",
        "The device failed to read.",
        "None: nothing is written. Copy the image to a sound device first, or try again.";
    SUPERBLOCK: Unusable "xfs-superblock", "superblock",
        "The superblock cannot be right.",
        "What superblocks have in common is taken from the copies, all of it if nothing else is left.";
    SUPERBLOCK_CHECKSUM: AtRisk "xfs-superblock-checksum", "superblock",
        "The checksum of the superblock does not match.",
        "It is sealed anew, after what most copies contradict was set to what they say.";
    SUPERBLOCK_FIELD: AtRisk "xfs-superblock-field", "superblock",
        "A field of the superblock names something that cannot be.",
        "It is set to what most copies say, or to what is there.";
    SUPERBLOCK_COPY: Harmless "xfs-superblock-copy", "superblock",
        "A copy of the superblock is damaged or differs from the first.",
        "The copy is written anew, unless most others differ from the first, too.";
    SUPERBLOCK_REST: Harmless "xfs-superblock-rest", "superblock",
        "What lies behind the superblock in its sector is not zero.",
        "It is zeroed.";
    SUPERBLOCK_LOG_BITS: Harmless "xfs-superblock-log-bits", "superblock",
        "The superblock says that the log uses features, and the log is empty.",
        "The bits are taken away.";
    SUPERBLOCK_COUNTS: Harmless "xfs-superblock-counts", "superblock",
        "A counter of the superblock is wrong.",
        "It is set to what was counted.";
    NEEDS_REPAIR: AtRisk "xfs-needs-repair", "superblock",
        "The image is marked as one that must be repaired before it is used.",
        "The mark is taken away when everything else is right.";
    LOG: AtRisk "xfs-log", "log",
        "The log must be replayed, and cannot be.",
        "What can be is replayed. Else the log is emptied, and what it was to change is made whole.";
    LSN: AtRisk "xfs-lsn", "log",
        "A structure says that it was written at a place of the log that is yet to come, so that a replay would \
         pass it over.",
        "The log goes on behind that place. One that no log can reach is taken back.";
    AG_CHECKSUM: AtRisk "xfs-ag-checksum", "group header",
        "The checksum of a header of a group does not match.",
        "The header is made anew, with the trees that it leads to.";
    AGF: Unusable "xfs-agf", "AGF",
        "The AGF cannot be right, so that the group's space is not known.",
        "The AGF and the trees of space are made anew.";
    AGI: Unusable "xfs-agi", "AGI",
        "The AGI cannot be right, so that the group's inodes are not known.",
        "The AGI and the trees of inodes are made anew from the chunks that are found.";
    AGFL: AtRisk "xfs-agfl", "AGFL",
        "The list of blocks that are kept for trees is damaged.",
        "The list is made anew, with the AGF and the trees of space.";
    AGF_COUNTS: Harmless "xfs-agf-counts", "AGF",
        "A counter of the AGF is wrong.",
        "The AGF and the trees of space are made anew.";
    AGI_COUNTS: Harmless "xfs-agi-counts", "AGI",
        "A counter of the AGI is wrong.",
        "The AGI and the trees of inodes are made anew.";
    CNTBT_DIFFERS: AtRisk "xfs-cntbt-differs", "cntbt",
        "The tree of free space by size has other records than that by block.",
        REBUILD;
    FINOBT_DIFFERS: AtRisk "xfs-finobt-differs", "finobt",
        "The tree of chunks with free inodes has other records than the tree of all chunks.",
        REBUILD;
    RMAP_MISSING: AtRisk "xfs-rmap-missing", "rmapbt",
        "Blocks have an owner that the reverse map does not have.",
        REBUILD;
    RMAP_STALE: AtRisk "xfs-rmap-stale", "rmapbt",
        "The reverse map has an owner of blocks that does not have them.",
        REBUILD;
    REFERENCES: AtRisk "xfs-refcount-differs", "refcountbt",
        "Shared blocks of a group are referred to more or less often than the tree says.",
        REBUILD;
    SPACE_LOST: Harmless "xfs-space-lost", "free space",
        "Blocks are neither free nor anybody's.",
        "They become free.";
    SPACE_FREE_USED: AtRisk "xfs-space-free-used", "free space",
        "Blocks are free and in use at once.",
        "They are taken out of the trees of free space.";
    SPACE_TWICE: AtRisk "xfs-space-twice", "free space",
        "Blocks are in use twice.",
        "The owner that the reverse map supports keeps them, the other gets a copy.";
    INODE_CHECKSUM: AtRisk "xfs-inode-checksum", "inode",
        "The checksum of an inode does not match.",
        "The inode is sealed anew, with what is wrong in it set right.";
    INODE: Unusable "xfs-inode", "inode",
        "The inode cannot be used.",
        "What can be saved of it is, from the reverse map, too; else it is cleared.";
    INODE_FREE: AtRisk "xfs-inode-free", "inode",
        "An inode that is free has what only inodes in use have.",
        "It is used again if a name leads to it, and else cleared.";
    INODE_NOT_USED: AtRisk "xfs-inode-not-used", "inode",
        "The tree of inodes says that an inode is in use, which is free.",
        "It is marked as free.";
    INODE_FIELD: AtRisk "xfs-inode-field", "inode",
        "A field of an inode has a value that it cannot have.",
        "It is set to one that fits the rest.";
    INODE_COUNTS: Harmless "xfs-inode-counts", "inode",
        "An inode counts its extents or blocks wrong.",
        "The counter is set to what was counted.";
    INODE_MAP: AtRisk "xfs-inode-map", "inode",
        "Extents of an inode contradict each other or its flags.",
        "What contradicts is taken out of the map, or the flag set.";
    INODE_LINKS: Harmless "xfs-inode-links", "inode",
        "An inode counts its links wrong.",
        "The counter is set to what was counted.";
    INODE_LOST: AtRisk "xfs-inode-lost", "inode",
        "An inode is in use, and no name leads to it.",
        "It goes back to where its parent pointers say, and else to lost+found.";
    UNLINKED: AtRisk "xfs-unlinked", "AGI",
        "A list of inodes without names is damaged.",
        "The lists of the group are built again from the inodes that can be reached from them.";
    UNLINKED_LEFT: Harmless "xfs-unlinked-left", "AGI",
        "Lists have inodes without names, but the log is clean: no mount has to free them.",
        "The inodes are freed, as a mount after a crash does.";
    ROOT: Unusable "xfs-root", "inode",
        "The root directory is none.",
        "A new one is made, to which everything else returns.";
    SYMLINK: AtRisk "xfs-symlink", "symbolic link",
        "The target of a symbolic link is damaged.",
        "The readable part of it stays; a link without a target is removed with its names.";
    SYMLINK_CHECKSUM: AtRisk "xfs-symlink-checksum", "symbolic link",
        "The checksum of the target of a symbolic link does not match.",
        "The target is written anew, as much of it as can be read.";
    DIR_SHORT: AtRisk "xfs-dir-short", "directory",
        "A directory in its inode is damaged.",
        "Every entry that can be read is kept.";
    DIR_CHECKSUM: AtRisk "xfs-dir-checksum", "directory",
        "The checksum of a block of a directory does not match.",
        "Every entry that can be read is kept, and the directory is made anew.";
    DIR_DATA: AtRisk "xfs-dir-data", "directory",
        "A data block of a directory is damaged.",
        "Every entry that can be read is kept, and the directory is made anew.";
    DIR_LEAF: AtRisk "xfs-dir-leaf", "directory",
        "The hash index of a directory is damaged.",
        "The directory is made anew from its entries.";
    DIR_FREE: AtRisk "xfs-dir-free", "directory",
        "The index of a directory's free space is damaged.",
        "The directory is made anew from its entries.";
    DIR_HASH: AtRisk "xfs-dir-hash", "directory",
        "The hash index of a directory has other entries than its data blocks.",
        "The directory is made anew from its entries.";
    DIR_BESTS: AtRisk "xfs-dir-bests", "directory",
        "The index of a directory's free space is not what its data blocks have.",
        "The directory is made anew from its entries.";
    DIR_MAP: AtRisk "xfs-dir-map", "directory",
        "Blocks or size of a directory are not what a directory has.",
        "Every entry that can be read is kept, and the directory is made anew.";
    DIR_DOT: AtRisk "xfs-dir-dot", "directory",
        "A directory's entry `.` is missing or leads elsewhere.",
        "It is made anew.";
    DIR_DOT_DOT: AtRisk "xfs-dir-dotdot", "directory",
        "A directory's entry `..` is missing or does not lead to the one above.",
        "It is made anew.";
    DIR_NAME: AtRisk "xfs-dir-name", "directory",
        "An entry has a name that none can have.",
        "It gets another name.";
    DIR_TWICE: AtRisk "xfs-dir-twice", "directory",
        "Two entries of a directory have the same name.",
        "One of them gets another name.";
    DIR_FTYPE: Harmless "xfs-dir-ftype", "directory",
        "An entry says another type than the inode that it leads to.",
        "The entry is set right.";
    DIR_DANGLING: AtRisk "xfs-dir-dangling", "directory",
        "An entry leads to an inode that is not in use.",
        "The entry is removed.";
    DIR_LOOP: AtRisk "xfs-dir-loop", "directory",
        "A directory is below itself and does not hang from the root.",
        "One of the loop goes back to where its parent pointer says, and else to lost+found.";
    ATTR: AtRisk "xfs-attr", "attributes",
        "Extended attributes are damaged.",
        "Every attribute that can be read is kept.";
    ATTR_CHECKSUM: AtRisk "xfs-attr-checksum", "attributes",
        "The checksum of a block of extended attributes does not match.",
        "Every attribute that can be read is kept, and stored anew.";
    ATTR_HASH: AtRisk "xfs-attr-hash", "attributes",
        "An attribute is filed under another hash than its name's.",
        "The attributes are filed anew.";
    ATTR_ACL: AtRisk "xfs-attr-acl", "attributes",
        "An access control list is none.",
        "It is removed.";
    PARENT: AtRisk "xfs-parent", "parent pointer",
        "A parent pointer is none, or does not agree with names.",
        "Parent pointers are made anew from names.";
    PARENT_MISSING: AtRisk "xfs-parent-missing", "parent pointer",
        "A name has no parent pointer.",
        "It is made from the name.";
    PARENT_STALE: AtRisk "xfs-parent-stale", "parent pointer",
        "A parent pointer has no name.",
        "It is removed, unless it tells where a lost inode was.";
    QUOTA: AtRisk "xfs-quota", "quota",
        "A quota file is damaged.",
        "What is no quota is made one anew, and quotas are marked as not counted, so that they are counted at \
         the next mount.";
    QUOTA_COUNTS: Harmless "xfs-quota-counts", "quota",
        "A quota counts something else than there is.",
        "Quotas are marked as not counted, so that they are counted at the next mount.";
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
