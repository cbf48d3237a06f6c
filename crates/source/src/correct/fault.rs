//! What can be wrong with rules: lines of manifests, tables, maps and file contexts.

/// What is wrong with a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleFault {
    /// A part of a line is not what it must be.
    #[error("{what}: expected {expected}, found {found:?}")]
    Expected {
        /// Which part.
        what: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// Two lines say something of the same thing, and not the same.
    #[error("{what} is in line {line} already; leave one of them out")]
    Twice {
        /// What both are about.
        what: String,
        /// The line before.
        line: usize,
    },
    /// A path that the source does not have.
    #[error("{0:?} is not in the source; correct the path, or leave the line out")]
    Missing(String),
    /// A file of the source that a list, which must name all, does not name.
    #[error("{0:?} has no line; add one, or leave the file out of the source")]
    Unlisted(String),
    /// A path at which there is a file of another type.
    #[error("{path:?}: expected a {expected}, found a {found}")]
    OtherType {
        /// The path.
        path: String,
        /// What the rule says.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A file that is not the one that the rule is about.
    #[error("{path:?}: {what} is {found}, the line says {expected}")]
    Mismatch {
        /// The path.
        path: String,
        /// What differs.
        what: &'static str,
        /// What the rule says.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A path that is one more name of a file, which has its attributes from its first name.
    #[error("{path:?} is a further name of the file {first:?}; name that one")]
    FurtherName {
        /// The path.
        path: String,
        /// The name under which the source has the file.
        first: String,
    },
    /// A hard link to a file that was left out, whose contents have passed by.
    #[error(
        "{path:?} is a hard link to {target:?}, which is excluded and can be read only once; exclude \
         both, or include both, or unpack the archive"
    )]
    LinkToExcluded {
        /// The path.
        path: String,
        /// The file.
        target: String,
    },
    /// A regular expression that cannot be used.
    #[error("expression {expression:?}: {problem}")]
    Expression {
        /// The expression.
        expression: String,
        /// Why not.
        problem: String,
    },
    /// A name of a user or group that nobody knows.
    #[error("no number is known of {what} {name:?}; write the number")]
    UnknownName {
        /// `user` or `group`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A file that has neither contents on the host nor is empty.
    #[error("the contents of {0:?} are nowhere: there is no such file in the root directory")]
    NoContents(String),
    /// More than is accepted.
    #[error("{what} is over the limit of {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit, in its unit.
        limit: u64,
    },
}

/// Bytes for a message: as text, whatever they are.
pub(crate) fn text(bytes: &[u8]) -> String {
    /// Longest piece of a damaged file in a message, in bytes.
    const SHOWN_MAX: usize = 200;
    let shown = bytes.get(..SHOWN_MAX).unwrap_or(bytes);
    let more = if shown.len() < bytes.len() { "…" } else { "" };
    format!("{}{more}", String::from_utf8_lossy(shown))
}

/// A path of an entry, for a message.
pub(crate) fn shown_path(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

impl RuleFault {
    pub(crate) fn expected(what: &'static str, expected: &'static str, found: &[u8]) -> Self {
        Self::Expected { what, expected, found: text(found) }
    }
}
