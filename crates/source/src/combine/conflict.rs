//! Why sources do not go together.

use crate::host::as_path;

/// Why sources do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// A path leads through what is no directory.
    #[error(
        "{:?} of an earlier source is no directory, and links are not followed: list the directory in this source, \
         or leave one of them out",
        as_path(.0)
    )]
    NotADirectory(Vec<u8>),
    /// The place of a source is no directory.
    #[error("--at leads to {:?}, which is no directory in an earlier source: name another place", as_path(.0))]
    Place(Vec<u8>),
    /// Something else would replace a directory that has entries.
    #[error(
        "it would take the place of a directory of an earlier source that is not empty: leave one of them out"
    )]
    NotEmpty,
    /// A source has two files of one path.
    #[error("listed more than once in one source; make the archive anew, without appending to it")]
    Repeated,
    /// A hard link to something that its source did not list before.
    #[error("a hard link to {:?}, which the same source does not hold before it", as_path(.0))]
    LinkTarget(Vec<u8>),
    /// More files than are kept in mind.
    #[error("the sources have more than {0} files: build fewer of them at a time")]
    TooMany(usize),
}

impl Conflict {
    /// Whether one source alone is at fault, rather than how they were put together.
    pub fn is_archive_fault(&self) -> bool {
        matches!(self, Self::Repeated | Self::LinkTarget(_) | Self::TooMany(_))
    }
}
