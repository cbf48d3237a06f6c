//! Options of all programs: tables for the argument parser [`Words`](crate::words::Words) and for `--supported`.

/// Options of a program.
#[derive(Debug)]
pub(crate) struct Options {
    /// Supported letters.
    pub(crate) works: &'static str,
    /// Letters of the original that are rejected. The parser contains the reasons.
    pub(crate) refused: &'static str,
    /// Long names with their letters.
    pub(crate) long: &'static [(&'static str, char)],
    /// Names in the option values that are lists.
    pub(crate) lists: &'static [List],
}

/// Names in the list value of an option. Tests compare the parser with them.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) letter: char,
    /// Supported names.
    pub(crate) works: &'static [&'static str],
    /// Names of the original that are rejected.
    #[cfg_attr(not(test), expect(dead_code, reason = "the parsers refuse them with a reason"))]
    pub(crate) refused: &'static [&'static str],
}

/// A program without options.
pub(crate) const NONE: Options = Options { works: "", refused: "", long: &[], lists: &[] };
pub(crate) const MKE2FS: Options = Options {
    works: "bIiNmLMUOEtTdjJqnVrGeoFvDCgcRK",
    refused: "lSz",
    long: &[],
    lists: &MKE2FS_LISTS,
};
pub(crate) const MKFS_XFS: Options = Options {
    works: "bsdinlmrcLpfqNVK",
    refused: "",
    long: &[("unsupported", UNSUPPORTED)],
    lists: &MKFS_XFS_LISTS,
};
pub(crate) const E2FSCK: Options =
    Options { works: "paynfzEVbBCDvdtFrsj", refused: "cklL", long: &[], lists: &E2FSCK_LISTS };
pub(crate) const XFS_REPAIR: Options =
    Options { works: "neVmtfLMPvolr", refused: "cd", long: &[], lists: &XFS_REPAIR_LISTS };
pub(crate) const RESIZE2FS: Options =
    Options { works: "VMPfFpd", refused: "bsSz", long: &[], lists: &[] };
pub(crate) const XFS_GROWFS: Options =
    Options { works: "DndmVrR", refused: "eilLptx", long: &[("rt-device", RT_DEVICE)], lists: &[] };
pub(crate) const XFS_INFO: Options = Options { works: "V", refused: "t", long: &[], lists: &[] };
pub(crate) const XFS_ADMIN: Options =
    Options { works: "VluLUfOr", refused: "jpec", long: &[], lists: &[] };
pub(crate) const DUMPE2FS: Options =
    Options { works: "hxfV", refused: "obgim", long: &[], lists: &[] };
pub(crate) const TUNE2FS: Options =
    Options { works: "VlLMcCiTemruoOUEfgjJQz", refused: "Is", long: &[], lists: &TUNE2FS_LISTS };
pub(crate) const DEBUGFS: Options =
    Options { works: "wRfVcDz", refused: "bsndi", long: &[("strict", STRICT)], lists: &[] };
pub(crate) const BLKID: Options =
    Options { works: "psonuOVcwdgD", refused: "iklLUtSHh", long: &BLKID_LONG, lists: &[] };
pub(crate) const MAKE_EXT4FS: Options =
    Options { works: "lbgiIjJmLsufwvaCSTB", refused: "zctXdD", long: &[], lists: &[] };
pub(crate) const E2FSDROID: Options =
    Options { works: "fepaCSTB", refused: "sugdD", long: &[], lists: &[] };
#[cfg(target_os = "linux")]
pub(crate) const FUSE2FS: Options = Options { works: "ofsV", refused: "d", long: &[], lists: &[] };
#[cfg(target_os = "linux")]
pub(crate) const MOUNT: Options =
    Options { works: "osfnvtrw", refused: "N", long: &[], lists: &[] };

const MKE2FS_LISTS: [List; 3] = [
    List {
        letter: 'E',
        works: &[
            "android_sparse",
            "assume_storage_prezeroed",
            "desc_size",
            "discard",
            "encoding",
            "encoding_flags",
            "hash_seed",
            "lazy_itable_init",
            "lazy_journal_init",
            "mmp_update_interval",
            "no_copy_xattrs",
            "nodiscard",
            "num_backup_sb",
            "offset",
            "orphan_file_size",
            "packed_meta_blocks",
            "quotatype",
            "resize",
            "revision",
            "root_owner",
            "root_perms",
            "root_selinux",
            "stride",
            "stripe-width",
            "stripe_width",
            "test_fs",
        ],
        refused: &[],
    },
    List { letter: 'J', works: &["fast_commit_size", "location", "size", "device"], refused: &[] },
    List {
        letter: 'O',
        works: &[
            "64bit",
            "bigalloc",
            "casefold",
            "dir_index",
            "dir_nlink",
            "ea_inode",
            "encrypt",
            "ext_attr",
            "extent",
            "extra_isize",
            "fast_commit",
            "filetype",
            "flex_bg",
            "has_journal",
            "huge_file",
            "inline_data",
            "journal_dev",
            "large_dir",
            "large_file",
            "meta_bg",
            "metadata_csum",
            "metadata_csum_seed",
            "mmp",
            "orphan_file",
            "project",
            "quota",
            "resize_inode",
            "sparse_super",
            "sparse_super2",
            "stable_inodes",
            "uninit_bg",
            "verity",
        ],
        refused: &["shared_blocks"],
    },
];
const MKFS_XFS_LISTS: [List; 9] = [
    List { letter: 'b', works: &["size"], refused: &[] },
    List {
        letter: 'd',
        works: &[
            "agcount",
            "agsize",
            "concurrency",
            "cowextsize",
            "daxinherit",
            "extszinherit",
            "file",
            "name",
            "noalign",
            "projinherit",
            "rtinherit",
            "sectsize",
            "size",
            "su",
            "sunit",
            "sw",
            "swidth",
        ],
        refused: &[],
    },
    List {
        letter: 'i',
        works: &[
            "align",
            "attr",
            "exchange",
            "max_atomic_write",
            "maxpct",
            "nrext64",
            "perblock",
            "projid32bit",
            "size",
            "sparse",
        ],
        refused: &[],
    },
    List {
        letter: 'l',
        works: &[
            "agnum",
            "concurrency",
            "file",
            "internal",
            "lazy-count",
            "logdev",
            "name",
            "sectsize",
            "size",
            "su",
            "sunit",
            "version",
        ],
        refused: &[],
    },
    List {
        letter: 'm',
        works: &[
            "autofsck",
            "bigtime",
            "crc",
            "finobt",
            "gqnoenforce",
            "gquota",
            "inobtcount",
            "metadir",
            "pqnoenforce",
            "pquota",
            "reflink",
            "rmapbt",
            "uqnoenforce",
            "uquota",
            "uuid",
        ],
        refused: &[],
    },
    List { letter: 'n', works: &["ftype", "parent", "size", "version"], refused: &[] },
    List { letter: 'p', works: &["atime", "file", "slashes_are_spaces"], refused: &[] },
    List {
        letter: 'r',
        works: &[
            "concurrency",
            "extsize",
            "file",
            "name",
            "noalign",
            "reserved",
            "rgcount",
            "rgsize",
            "rtdev",
            "size",
            "zoned",
        ],
        refused: &["start"],
    },
    List { letter: 's', works: &["size"], refused: &[] },
];
const E2FSCK_LISTS: [List; 1] = [List {
    letter: 'E',
    works: &[
        "discard",
        "ea_ver",
        "expand_extra_isize",
        "fixes_only",
        "fragcheck",
        "inode_count_fullmap",
        "journal_only",
        "no_inode_count_fullmap",
        "no_journal",
        "no_optimize_extents",
        "nodiscard",
        "optimize_extents",
        "readahead_kb",
    ],
    refused: &["bmap2extent", "check_encoding", "unshare_blocks"],
}];
const XFS_REPAIR_LISTS: [List; 1] = [List {
    letter: 'o',
    works: &["ag_stride", "bhash", "noquota", "phase2_threads"],
    refused: &["force_geometry"],
}];
const TUNE2FS_LISTS: [List; 3] = [
    List {
        letter: 'E',
        works: &[
            "^test_fs",
            "clear_mmp",
            "encoding",
            "encoding_flags",
            "force_fsck",
            "hash_alg",
            "mmp_update_interval",
            "mount_opts",
            "orphan_file_size",
            "stride",
            "stripe-width",
            "stripe_width",
            "test_fs",
        ],
        refused: &["revision"],
    },
    List { letter: 'J', works: &["device", "fast_commit_size", "location", "size"], refused: &[] },
    List {
        letter: 'Q',
        works: &["^grpquota", "^prjquota", "^usrquota", "grpquota", "prjquota", "usrquota"],
        refused: &[],
    },
];

/// Long options of blkid(8).
const BLKID_LONG: [(&str, char); 20] = [
    ("cache-file", 'c'),
    ("no-encoding", 'd'),
    ("no-part-details", 'D'),
    ("garbage-collect", 'g'),
    ("hint", 'H'),
    ("info", 'i'),
    ("list-filesystems", 'k'),
    ("list-one", 'l'),
    ("label", 'L'),
    ("match-types", 'n'),
    ("output", 'o'),
    ("offset", 'O'),
    ("probe", 'p'),
    ("match-tag", 's'),
    ("size", 'S'),
    ("match-token", 't'),
    ("usages", 'u'),
    ("uuid", 'U'),
    ("version", 'V'),
    ("help", 'h'),
];

/// Internal letter of the long option `--unsupported` of mkfs.xfs.
pub(crate) const UNSUPPORTED: char = '\0';
/// The option `--rt-device`, which the original does not have.
pub(crate) const RT_DEVICE: char = '\x01';
/// Internal letter of the long option `--strict` of debugfs.
pub(crate) const STRICT: char = '!';

impl Options {
    /// Returns whether the original has an option of this letter.
    pub(crate) fn has(&self, letter: char) -> bool {
        let is_long = self.long.iter().any(|(_, stands_for)| *stands_for == letter);
        is_long || self.works.contains(letter) || self.refused.contains(letter)
    }

    /// Returns the supported options in command-line syntax.
    pub(crate) fn written(&self) -> impl Iterator<Item = String> {
        let letters = self.works.chars().map(|letter| format!("-{letter}"));
        let works = |letter: &char| !self.refused.contains(*letter);
        let long = self.long.iter().filter(move |(_, letter)| works(letter));
        let names = self.lists.iter().flat_map(|List { letter, works, .. }| {
            works.iter().map(move |name| format!("-{letter} {name}"))
        });
        letters.chain(long.map(|(name, _)| format!("--{name}"))).chain(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_option_is_refused_and_works() {
        for options in [MKE2FS, MKFS_XFS, E2FSCK, XFS_REPAIR, RESIZE2FS, XFS_GROWFS, XFS_INFO] {
            assert!(!options.works.contains(|letter| options.refused.contains(letter)));
        }
        for options in [XFS_ADMIN, DUMPE2FS, TUNE2FS, DEBUGFS, BLKID, MAKE_EXT4FS, E2FSDROID] {
            assert!(!options.works.contains(|letter| options.refused.contains(letter)));
        }
        assert_eq!(NONE.written().count(), 0);
    }

    #[test]
    fn options_are_listed_as_they_are_written() {
        let listed = DEBUGFS.written().collect::<Vec<_>>();
        assert_eq!(listed, ["-w", "-R", "-f", "-V", "-c", "-D", "-z", "--strict"]);
        assert!(!BLKID.written().any(|option| option == "--uuid"));
    }
}
