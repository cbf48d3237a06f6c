//! The options of all programs: the tables that [`Words`](crate::words::Words) reads arguments by, and `--supported` lists.

/// The options of a program.
#[derive(Debug)]
pub(crate) struct Options {
    /// Letters that work.
    pub(crate) works: &'static str,
    /// Letters of the original that are refused. The parser knows why.
    pub(crate) refused: &'static str,
    /// Long names, and their letters.
    pub(crate) long: &'static [(&'static str, char)],
}

/// A program without options.
pub(crate) const NONE: Options = Options { works: "", refused: "", long: &[] };
pub(crate) const MKE2FS: Options =
    Options { works: "bIiNmLMUOEtTdjJqnVrGeoFvDCgcRK", refused: "lSz", long: &[] };
pub(crate) const MKFS_XFS: Options =
    Options { works: "bsdinlmrcLpfqNVK", refused: "", long: &[("unsupported", UNSUPPORTED)] };
pub(crate) const E2FSCK: Options =
    Options { works: "paynfzEVbBCDvdtFrs", refused: "cklLj", long: &[] };
pub(crate) const XFS_REPAIR: Options = Options { works: "neVmtfLMPvo", refused: "cdlr", long: &[] };
pub(crate) const RESIZE2FS: Options = Options { works: "VMPfFpd", refused: "bsSz", long: &[] };
pub(crate) const XFS_GROWFS: Options = Options { works: "DndmV", refused: "eilLprRtx", long: &[] };
pub(crate) const XFS_INFO: Options = Options { works: "V", refused: "t", long: &[] };
pub(crate) const XFS_ADMIN: Options = Options { works: "VluLUf", refused: "jpecOr", long: &[] };
pub(crate) const DUMPE2FS: Options = Options { works: "hxfV", refused: "obgim", long: &[] };
pub(crate) const TUNE2FS: Options =
    Options { works: "VlLMcCiTemruoOUEfgjJQ", refused: "Isz", long: &[] };
pub(crate) const DEBUGFS: Options =
    Options { works: "wRfVcD", refused: "bsndiz", long: &[("strict", STRICT)] };
pub(crate) const BLKID: Options =
    Options { works: "psonuOVcwdgD", refused: "iklLUtSHh", long: &BLKID_LONG };
pub(crate) const MAKE_EXT4FS: Options =
    Options { works: "lbgiIjJmLsufwvaCSTB", refused: "zctXdD", long: &[] };
pub(crate) const E2FSDROID: Options = Options { works: "fepaCSTB", refused: "sugdD", long: &[] };
#[cfg(target_os = "linux")]
pub(crate) const FUSE2FS: Options = Options { works: "ofsV", refused: "d", long: &[] };
#[cfg(target_os = "linux")]
pub(crate) const MOUNT: Options = Options { works: "osfnvtrw", refused: "N", long: &[] };

/// The long options of blkid(8).
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
/// Internal letter of the long option `--strict` of debugfs.
pub(crate) const STRICT: char = '!';

impl Options {
    /// Returns whether the original has an option of this letter.
    pub(crate) fn has(&self, letter: char) -> bool {
        let is_long = self.long.iter().any(|(_, stands_for)| *stands_for == letter);
        is_long || self.works.contains(letter) || self.refused.contains(letter)
    }

    /// Returns the options that work, as they are written.
    pub(crate) fn written(&self) -> impl Iterator<Item = String> {
        let letters = self.works.chars().map(|letter| format!("-{letter}"));
        let works = |letter: &char| !self.refused.contains(*letter);
        let long = self.long.iter().filter(move |(_, letter)| works(letter));
        letters.chain(long.map(|(name, _)| format!("--{name}")))
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
        assert_eq!(listed, ["-w", "-R", "-f", "-V", "-c", "-D", "--strict"]);
        assert!(!BLKID.written().any(|option| option == "--uuid"));
    }
}
