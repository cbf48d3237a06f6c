//! The image that a bundle belongs to.

use serde::{Deserialize, Serialize};

use super::BundleError;
use crate::digest::Digest;

/// Number of the first bytes of an image that identify it, together with other properties. They contain the superblock,
/// with its times and counters, and reach every reader with the first response.
#[cfg(feature = "objects")]
pub(crate) const HEAD_BYTES: u64 = 128 << 10;

/// Properties of an image that change when its contents change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Identity {
    /// A published image.
    Published {
        /// Digest of the sizes and the chunk list of its manifest.
        contents: Digest,
    },
    /// An object or a file.
    Hosted {
        /// Digest of the first 128 KiB.
        head: Digest,
        /// ETag, if the image was read from a server that sends one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        etag: Option<String>,
        /// Time of the last change in seconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        modified: Option<i64>,
    },
}

impl Identity {
    /// Returns the identity of an object or a file by its first bytes. `modified` is 0 if it is unknown.
    #[cfg(feature = "objects")]
    pub(crate) fn hosted(head: &[u8], etag: Option<String>, modified: i64) -> Self {
        let modified = (modified != 0).then_some(modified);
        Self::Hosted { head: Digest::of(head), etag, modified }
    }

    /// Checks that `found`, the current properties of an image, are those of this bundle's image. The caller compares
    /// the lengths.
    ///
    /// A strong ETag identifies a version. Without one the time of the last change must be equal. The start of the image
    /// must be equal in any case.
    ///
    /// # Errors
    /// [`BundleError::Stale`] with the first difference.
    pub fn check(&self, found: &Self) -> Result<(), BundleError> {
        match (self, found) {
            (Self::Published { contents }, Self::Published { contents: now }) => {
                same("chunk list", contents, now, Digest::to_string)
            }
            (
                Self::Hosted { head, etag, modified },
                Self::Hosted { head: head_now, etag: etag_now, modified: modified_now },
            ) => {
                match etag {
                    Some(etag) => same("ETag", &Some(etag), &etag_now.as_ref(), text_of)?,
                    None if modified.is_none() => return Err(untied()),
                    None => {}
                }
                if etag.as_ref().is_none_or(|etag| etag.starts_with("W/")) {
                    same("time of the last change", modified, modified_now, text_of)?;
                }
                same("first bytes", head, head_now, Digest::to_string)
            }
            _ => Err(BundleError::Stale {
                field: "kind",
                expected: self.kind().into(),
                found: found.kind().into(),
            }),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Published { .. } => "published image",
            Self::Hosted { .. } => "object",
        }
    }
}

fn untied() -> BundleError {
    BundleError::Identity("neither an ETag nor a time of the last change".into())
}

/// Compares two values, which the error shows by `text`.
fn same<T: PartialEq>(
    field: &'static str,
    expected: &T,
    found: &T,
    text: impl Fn(&T) -> String,
) -> Result<(), BundleError> {
    if expected == found {
        return Ok(());
    }
    Err(BundleError::Stale { field, expected: text(expected), found: text(found) })
}

fn text_of(value: &Option<impl ToString>) -> String {
    value.as_ref().map_or("none".into(), ToString::to_string)
}
