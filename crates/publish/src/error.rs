//! What can go wrong with what is published.

use std::io;

use crate::digest::Digest;

/// Why something could not be published, read or removed. Objects are named as they are found in the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name or an address that nothing can be published under.
    #[error("{0}")]
    Usage(String),
    /// The image cannot be read.
    #[error("cannot read the image at byte {offset}: {source}")]
    Image {
        /// First byte of what was asked for.
        offset: u64,
        /// What the device says.
        source: io::Error,
    },
    /// Somebody changed the image while it was read.
    #[error(
        "the image changed at byte {offset} while it was published: publish it again when nobody writes to it"
    )]
    ImageChanged {
        /// First byte of the chunk.
        offset: u64,
    },
    /// The store does not do what it was asked to.
    #[error("cannot {operation} {object}: {}", address::safe_line(&source.to_string()))]
    Store {
        /// What was tried: a verb.
        operation: &'static str,
        /// The object.
        object: String,
        /// What the store's library says.
        source: object_store::Error,
    },
    /// An object is not there.
    #[error("{object} is missing; {advice}")]
    Missing {
        /// The object.
        object: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// An object does not hold what it must.
    #[error("{object} is damaged: {problem}; {advice}")]
    Damaged {
        /// The object.
        object: String,
        /// What was expected, and what was found.
        problem: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// Others work below the prefix, and did not end in time.
    #[error("{object}: {who}; try again when it has ended, or in an hour if it was killed")]
    Busy {
        /// Their mark.
        object: String,
        /// What they do.
        who: &'static str,
    },
    /// This one worked so slowly that others took it for dead.
    #[error(
        "{object} was removed: this took so long without a sign that it was taken for dead; run it again: what was sent is kept"
    )]
    Lapsed {
        /// The mark that was removed.
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

    /// A chunk that cannot be what a manifest says.
    pub(crate) fn damaged_chunk(object: &object_store::path::Path, problem: String) -> Self {
        let advice = "publish the image again with --resend";
        Self::Damaged { object: object.to_string(), problem, advice }
    }

    /// Contents that have another digest than their object's name says.
    pub(crate) fn wrong_digest(expected: Digest, found: Digest) -> String {
        format!("its contents should have SHA-256 {expected} and have {found}")
    }
}
