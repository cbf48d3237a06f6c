//! Errors of volumes.

use std::io;

use slatedb::{CloseReason, ErrorKind};
use thiserror::Error;

/// A failure of a volume or its bucket. Callers add the volume's address.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// A request to the bucket failed.
    #[error("cannot access the bucket: {}", disk::address::safe_line(&.0.to_string()))]
    Store(#[from] object_store::Error),
    /// The database failed.
    #[error("{}", of_database(.0))]
    Database(slatedb::Error),
    /// A request for a bulk object failed.
    #[error(
        "cannot access object {}: {}",
        disk::address::safe_line(.path),
        disk::address::safe_line(&.source.to_string())
    )]
    Object {
        /// Path in the bucket.
        path: String,
        /// The failure.
        source: object_store::Error,
    },
    /// Another process opened the volume later.
    #[error(
        "the volume was taken over by another machine and can no longer be written here; unmount \
         it here"
    )]
    Fenced,
    /// An earlier write or flush failed, so the volume accepts no more writes.
    #[error("{0}")]
    Failed(String),
    /// A snapshot was removed, and with it references that the garbage collector needs.
    #[error(
        "a snapshot was removed while the garbage collector read its references; run diskwright \
         volume gc again"
    )]
    SnapshotRemoved,
    /// There is no volume.
    #[error("the volume does not exist; create one with diskwright volume create")]
    NotFound,
    /// A volume exists already, or the remains of one.
    #[error("{0} exists already; remove it with diskwright volume delete")]
    Exists(&'static str),
    /// The snapshot does not exist.
    #[error("the volume has no snapshot {0:?}; list its snapshots with diskwright volume list")]
    NoSnapshot(String),
    /// A snapshot of this name exists.
    #[error("snapshot {0:?} exists already; choose another name")]
    SnapshotExists(String),
    /// An invalid snapshot name.
    #[error(
        "{0:?} is not a valid snapshot name: use at most 100 letters, digits, dots, dashes and \
         underscores"
    )]
    SnapshotName(String),
    /// The log contains synced writes that are not in the tables yet.
    #[error(
        "the volume is open elsewhere or was not closed, and its last synced writes are not in its \
         tables; unmount it there, or use --take-over if it is not mounted (a mount elsewhere then \
         fails)"
    )]
    NotSettled,
    /// The clone would be in another bucket. A clone shares objects with its origin.
    #[error("a clone must be in the bucket of its origin; choose an address in {0}")]
    OtherBucket(String),
    /// The marker or the contents are inconsistent.
    #[error("the volume is damaged: {0}")]
    Damaged(String),
    /// A newer program created the volume.
    #[error(
        "the volume has version {found}, but this program supports only versions up to {known}; \
         use a newer program"
    )]
    Version {
        /// Version in the marker.
        found: u32,
        /// Newest supported version.
        known: u32,
    },
    /// The store overwrites objects although a put is conditional.
    #[error(
        "the store ignores conditions of puts (If-None-Match), so two machines could write the \
         volume; use a store that supports them"
    )]
    NoConditions,
    /// An invalid volume size.
    #[error("invalid volume size {len}: choose a multiple of {block_bytes} up to {max} bytes")]
    Size {
        /// The requested size in bytes.
        len: u64,
        /// Block size in bytes.
        block_bytes: u32,
        /// Maximum size in bytes.
        max: u64,
    },
    /// A file or device of the host failed.
    #[error(transparent)]
    Host(#[from] io::Error),
}

impl From<slatedb::Error> for VolumeError {
    fn from(error: slatedb::Error) -> Self {
        match error.kind() {
            ErrorKind::Closed(CloseReason::Fenced) => Self::Fenced,
            _ => Self::Database(error),
        }
    }
}

/// Describes an error of the database to the user.
fn of_database(error: &slatedb::Error) -> String {
    let said = disk::address::safe_line(&error.to_string());
    match error.kind() {
        ErrorKind::Unavailable => format!("the bucket does not answer: {said}"),
        ErrorKind::Data => {
            format!("the volume is damaged, or one of its objects is missing: {said}")
        }
        ErrorKind::Closed(_) => format!("the volume was closed after a failure: {said}"),
        _ => said,
    }
}

impl VolumeError {
    /// Checks whether the volume itself is damaged or unsupported, as opposed to an inaccessible bucket.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged(_) | Self::Version { .. } => true,
            Self::Database(error) => matches!(error.kind(), ErrorKind::Data),
            Self::Object { source, .. } => matches!(source, object_store::Error::NotFound { .. }),
            _ => false,
        }
    }
}

impl From<VolumeError> for io::Error {
    fn from(error: VolumeError) -> Self {
        let kind = match &error {
            VolumeError::Host(_) => match error {
                VolumeError::Host(error) => return error,
                _ => io::ErrorKind::Other,
            },
            VolumeError::NotFound | VolumeError::NoSnapshot(_) => io::ErrorKind::NotFound,
            VolumeError::Exists(_) | VolumeError::SnapshotExists(_) => io::ErrorKind::AlreadyExists,
            VolumeError::SnapshotName(_) | VolumeError::Size { .. } => io::ErrorKind::InvalidInput,
            VolumeError::NotSettled => io::ErrorKind::ResourceBusy,
            error if error.is_damage() => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}
