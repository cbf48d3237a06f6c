//! Conflicts between combined sources.

use crate::host::as_path;

/// A conflict between combined sources.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// A component of a path is not a directory.
    #[error(
        "{:?} of an earlier source is not a directory, and links are not followed; add the \
         directory to this source, or leave one of them out",
        as_path(.0)
    )]
    NotADirectory(Vec<u8>),
    /// The target directory of a source is not a directory.
    #[error("--at refers to {:?}, which is not a directory in an earlier source; choose another \
             path", as_path(.0))]
    Place(Vec<u8>),
    /// A non-directory would replace a directory with entries.
    #[error(
        "it would replace a directory of an earlier source that is not empty; leave one of them out"
    )]
    NotEmpty,
    /// A source contains a path twice.
    #[error("listed more than once in one source; create the archive again without appending")]
    Repeated,
    /// A hard link to a file that its source did not list before.
    #[error("a hard link to {:?}, which is not earlier in the same source", as_path(.0))]
    LinkTarget(Vec<u8>),
    /// The number of files exceeds the limit.
    #[error("the sources have more than {0} files; build fewer at a time")]
    TooMany(usize),
}

impl Conflict {
    /// Returns whether one source alone is invalid, independent of the combination.
    pub fn is_archive_fault(&self) -> bool {
        matches!(self, Self::Repeated | Self::LinkTarget(_) | Self::TooMany(_))
    }
}
