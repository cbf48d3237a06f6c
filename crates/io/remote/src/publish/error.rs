//! Errors of publishing, reading and sweeping.

use std::io;

use crate::publish::digest::Digest;

/// The reason why an image could not be published, read or removed. Objects are named by their paths in the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An invalid name or address.
    #[error("{0}")]
    Usage(String),
    /// The image cannot be read.
    #[error("cannot read the image at byte {offset}: {source}")]
    Image {
        /// First byte of the failed read.
        offset: u64,
        /// Error of the device.
        source: io::Error,
    },
    /// The image was modified while it was read.
    #[error(
        "the image changed at byte {offset} during publication; publish it again while no program \
         writes to it"
    )]
    ImageChanged {
        /// Offset of the chunk in the image.
        offset: u64,
    },
    /// The store rejected or failed a request.
    #[error("cannot {operation} {object}: {}", disk::address::safe_line(&source.to_string()))]
    Store {
        /// The failed operation: a verb.
        operation: &'static str,
        /// Path of the object.
        object: String,
        /// Error of the store's library.
        source: object_store::Error,
    },
    /// An object does not exist.
    #[error("{object} is missing; {advice}")]
    Missing {
        /// Path of the object.
        object: String,
        /// Advice to the user.
        advice: &'static str,
    },
    /// An object has invalid contents.
    #[error("{object} is damaged: {problem}; {advice}")]
    Damaged {
        /// Path of the object.
        object: String,
        /// Expected and found contents.
        problem: String,
        /// Advice to the user.
        advice: &'static str,
    },
    /// Another publisher or sweep works below the prefix and did not finish in time.
    #[error("{object}: {who}; retry after it has ended, or in an hour if it was killed")]
    Busy {
        /// Path of its mark.
        object: String,
        /// Description of its work.
        who: &'static str,
    },
    /// This process was silent for so long that another one removed its mark as stale.
    #[error(
        "{object} was removed as stale, because this process made no progress for too long; run \
         the command again, the chunks sent so far are kept"
    )]
    Lapsed {
        /// Path of the removed mark.
        object: String,
    },
}

impl Error {
    pub(crate) fn store(
        operation: &'static str,
        object: &object_store::path::Path,
    ) -> impl FnOnce(object_store::Error) -> Self {
        let object = object.to_string();
        move |source| Self::Store { operation, object, source }
    }

    /// Returns the error for a chunk that does not match its manifest.
    pub(crate) fn damaged_chunk(object: &object_store::path::Path, problem: String) -> Self {
        let advice = "publish the image again with --resend";
        Self::Damaged { object: object.to_string(), problem, advice }
    }

    /// Describes contents whose digest differs from the one in the object's name.
    pub(crate) fn wrong_digest(expected: Digest, found: Digest) -> String {
        expected.differs_from(found)
    }
}
