//! Lazy reading of remote data as a device. Bytes are fetched on demand, and not twice.
//!
//! A [`RangeSource`] fetches bytes of one version of something. A [`LazyDevice`] makes a block device of it: aligned
//! chunks in bounded memory. Neighbouring chunks are fetched with one request, and concurrent readers share a fetch.

mod chunks;
mod device;
mod fetch;
mod pieces;

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use thiserror::Error;

pub use device::LazyDevice;
pub(crate) use pieces::Pieces;

use crate::place::disk_cache::DiskCache;

/// Bytes of one version of something, fetched in ranges.
pub trait RangeSource: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Checks whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the identity of these bytes, which is the key of the disk cache. Sources of equal identity must have
    /// equal bytes. Examples are an address with its pinned ETag, and a digest.
    fn identity(&self) -> &str;

    /// Fetches all bytes of `range`, or fails. The range starts at a chunk and ends at a chunk or at the end. The result
    /// has one piece for each chunk, which should not share its memory with others.
    fn fetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Bytes>, FetchError>>;

    /// Returns the first part of `range` that is known to be zeros, without fetching it.
    fn known_zeros(&self, _range: Range<u64>) -> Option<Range<u64>> {
        None
    }

    /// Unit for fetching and caching, in bytes. Not 0.
    fn chunk_bytes(&self) -> u64;
}

/// The reason why bytes could not be fetched. Each variant names the object.
#[derive(Clone, Debug, Error)]
pub enum FetchError {
    /// The connection broke, the server is busy, or the answer was wrong. A retry may succeed.
    #[error("{address}: {reason}")]
    Transient {
        /// Address of the object.
        address: String,
        /// Description of the problem.
        reason: String,
    },
    /// The object was replaced after it was opened.
    #[error(
        "{address} was replaced while in use (expected {expected}, found {found}); open it again"
    )]
    Changed {
        /// Address of the object.
        address: String,
        /// The pinned version.
        expected: String,
        /// The current version.
        found: String,
    },
    /// The object does not exist.
    #[error("{address}: object not found")]
    Absent {
        /// Address of the object.
        address: String,
    },
    /// The server denies access to the object, whichever bytes are requested.
    #[error("{address}: {reason}")]
    Denied {
        /// Address of the object.
        address: String,
        /// Reason, and advice to the user.
        reason: String,
    },
    /// A permanent error. Retries are useless.
    #[error("{address}: {reason}")]
    Refused {
        /// Address of the object.
        address: String,
        /// Reason, and advice to the user.
        reason: String,
    },
}

/// The kind says if other bytes can be fetched: see [`vfs::runs::read_salvaging`].
impl From<FetchError> for io::Error {
    fn from(error: FetchError) -> Self {
        let kind = match error {
            FetchError::Transient { .. } => ErrorKind::ConnectionAborted,
            // Kinds such as `NotFound` would look like errors of a file in the image.
            FetchError::Changed { .. } | FetchError::Absent { .. } | FetchError::Denied { .. } => {
                ErrorKind::StaleNetworkFileHandle
            }
            FetchError::Refused { .. } => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// Options for lazy reading.
#[derive(Clone)]
pub struct LazyOptions {
    /// Size of the memory cache in bytes, without copies in progress. A third of it may be bytes that were read.
    pub memory_bytes: u64,
    /// Maximum number of bytes per request.
    pub request_bytes: u64,
    /// Maximum number of bytes being prefetched at a time; 0 disables prefetching.
    pub read_ahead_bytes: u64,
    /// Maximum number of attempts of a request with transient failures.
    pub tries: u32,
    /// Delay before the second attempt; doubled for each further one.
    pub wait: Duration,
    /// Disk cache for chunks, kept across processes.
    pub disk: Option<Arc<DiskCache>>,
    /// Use of the metadata bundles of images.
    pub bundles: bool,
}

impl Default for LazyOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 192 << 20,
            request_bytes: 8 << 20,
            read_ahead_bytes: 64 << 20,
            tries: 3,
            wait: Duration::from_millis(100),
            disk: None,
            bundles: true,
        }
    }
}
