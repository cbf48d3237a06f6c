//! Errors in rules: lines of manifests, tables, maps and file contexts.

/// An error in a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// A part of a line is invalid.
    #[error("{what}: expected {expected}, found {found:?}")]
    Expected {
        /// The part.
        what: &'static str,
        /// The expected syntax.
        expected: &'static str,
        /// The actual text.
        found: String,
    },
    /// Two lines contradict each other.
    #[error("{what} is already set in line {line}; leave one of them out")]
    Twice {
        /// The subject of both lines.
        what: String,
        /// The earlier line.
        line: usize,
    },
    /// A path that the source does not contain.
    #[error("{0:?} is not in the source; correct the path, or leave the line out")]
    Missing(String),
    /// A file of the source that is missing in a list that must be complete.
    #[error("{0:?} has no line; add one, or leave the file out of the source")]
    Unlisted(String),
    /// The file at a path has another type.
    #[error("{path:?}: expected a {expected}, found a {found}")]
    OtherType {
        /// The path.
        path: String,
        /// Type in the rule.
        expected: &'static str,
        /// Type of the file.
        found: &'static str,
    },
    /// The file differs from the one that the rule describes.
    #[error("{path:?}: wrong {what} (expected {expected}, found {found})")]
    Mismatch {
        /// The path.
        path: String,
        /// The property that differs.
        what: &'static str,
        /// Value in the rule.
        expected: String,
        /// Value of the file.
        found: String,
    },
    /// The path is an additional name of a file, whose attributes belong to its first name.
    #[error("{path:?} is another name of the file {first:?}; use that one")]
    FurtherName {
        /// The path.
        path: String,
        /// The file's first name in the source.
        first: String,
    },
    /// A hard link to an excluded file, whose sequential contents have been skipped.
    #[error(
        "{path:?} is a hard link to {target:?}, which is excluded and can be read only once; exclude \
         both, or include both, or unpack the archive"
    )]
    LinkToExcluded {
        /// The path.
        path: String,
        /// The excluded file.
        target: String,
    },
    /// An invalid regular expression.
    #[error("expression {expression:?}: {problem}")]
    Expression {
        /// The expression.
        expression: String,
        /// The reason.
        problem: String,
    },
    /// An unknown user or group name.
    #[error("{what} {name:?} is unknown; write its number")]
    UnknownName {
        /// `user` or `group`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A file that is not empty and has no contents on the host.
    #[error("{0:?} has no contents: there is no such file in the root directory")]
    NoContents(String),
    /// A limit is exceeded.
    #[error("{what} exceeds the limit of {limit}")]
    TooLarge {
        /// The limited quantity.
        what: &'static str,
        /// The limit, in its unit.
        limit: u64,
    },
}

/// Formats bytes as text for a message.
pub(crate) fn text(bytes: &[u8]) -> String {
    /// Maximum number of bytes of a damaged file in a message.
    const SHOWN_MAX: usize = 200;
    let shown = bytes.get(..SHOWN_MAX).unwrap_or(bytes);
    let more = if shown.len() < bytes.len() { "…" } else { "" };
    format!("{}{more}", String::from_utf8_lossy(shown))
}

/// Formats the path of an entry for a message.
pub(crate) fn shown_path(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

impl RuleFault {
    pub(crate) fn expected(what: &'static str, expected: &'static str, found: &[u8]) -> Self {
        Self::Expected { what, expected, found: text(found) }
    }
}
