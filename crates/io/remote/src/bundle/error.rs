//! Errors of bundles.

use crate::digest::Digest;

/// The reason why bytes are not a valid bundle of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The magic number is missing.
    #[error("not a metadata bundle (wrong magic number)")]
    Magic,
    /// The version is newer than this program.
    #[error("the bundle has version {0}, but this program supports only version 1")]
    Version(u32),
    /// The bundle is shorter or longer than its header says.
    #[error("the {part} has {found} bytes, expected {expected}")]
    Length {
        /// The part.
        part: &'static str,
        /// Length according to the header.
        expected: u64,
        /// Actual length.
        found: u64,
    },
    /// A part does not match its digest.
    #[error("the {part} is damaged: {}", expected.differs_from(*found))]
    Digest {
        /// The part.
        part: &'static str,
        /// The digest stored for it.
        expected: Digest,
        /// The digest of its bytes.
        found: Digest,
    },
    /// A value of the header or of a table is invalid.
    #[error("the {field} is {found}: {rule}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        found: u64,
        /// The rule that it violates.
        rule: &'static str,
    },
    /// The identity cannot be parsed.
    #[error("the identity of its image is invalid: {0}")]
    Identity(String),
    /// An extent is invalid.
    #[error("extent {number} {problem}")]
    Extent {
        /// Number of the extent, from 0.
        number: u32,
        /// Description of the problem.
        problem: &'static str,
    },
    /// A frame is invalid.
    #[error("frame {number} is damaged: {problem}")]
    Frame {
        /// Number of the frame, from 0.
        number: u32,
        /// Description of the problem.
        problem: String,
    },
    /// The bundle belongs to another image, or to another version of the image.
    #[error(
        "it belongs to another version of the image ({field}: expected {expected}, found {found})"
    )]
    Stale {
        /// The property that differs.
        field: &'static str,
        /// Its value in the bundle.
        expected: String,
        /// Its value now.
        found: String,
    },
}

/// Logs the reason why a bundle is not used.
#[cfg(feature = "objects")]
pub(crate) fn warn(name: &str, problem: &dyn std::fmt::Display) {
    let problem = disk::address::safe_line(&problem.to_string());
    let problem =
        problem.strip_prefix(name).map_or(&*problem, |rest| rest.trim_start_matches(": "));
    tracing::warn!("{name}: {problem}; the image is read without its metadata bundle");
}
