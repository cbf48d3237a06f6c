//! Reading what lies far away as a device: nothing is fetched before it is asked for, and nothing twice.
//!
//! A [`RangeSource`] knows how to fetch bytes of one version of something; a [`LazyDevice`] over it makes a block device
//! of that: aligned chunks in a bounded memory, neighbours fetched with one request, what two threads want fetched once.

mod chunks;
mod device;
mod fetch;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use thiserror::Error;

pub use device::LazyDevice;

use crate::disk_cache::DiskCache;

/// Bytes of one version of something, fetched in ranges.
pub trait RangeSource: Send + Sync {
    /// Length in bytes.
    fn len(&self) -> u64;

    /// Whether there are no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What these bytes are: two sources that say the same have the same bytes. An address with the ETag that it was
    /// pinned to, or a digest. A cache on disk is kept by it.
    fn identity(&self) -> &str;

    /// Fetches the bytes of `range`, which lies within the length: all of them, or an error.
    fn fetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, FetchError>>;

    /// The unit in which it is best fetched and kept, in bytes. Not 0.
    fn chunk_bytes(&self) -> u64;
}

/// Why bytes could not be fetched. Each names the object.
#[derive(Clone, Debug, Error)]
pub enum FetchError {
    /// The connection broke, the server is busy, or the answer was not what was asked for: it may go well another time.
    #[error("{address}: {reason}")]
    Transient {
        /// The object.
        address: String,
        /// What happened.
        reason: String,
    },
    /// It is not what it was when it was opened.
    #[error(
        "{address} was replaced while it was in use: it was {expected} and is {found}; open it again"
    )]
    Changed {
        /// The object.
        address: String,
        /// The version that it was pinned to.
        expected: String,
        /// What it is now.
        found: String,
    },
    /// It is not there.
    #[error("{address}: there is no such object")]
    Absent {
        /// The object.
        address: String,
    },
    /// It cannot be had, however often it is asked for.
    #[error("{address}: {reason}")]
    Refused {
        /// The object.
        address: String,
        /// Why, and what to do about it.
        reason: String,
    },
}

impl From<FetchError> for std::io::Error {
    fn from(error: FetchError) -> Self {
        Self::other(error)
    }
}

/// How something is read lazily.
#[derive(Clone)]
pub struct LazyOptions {
    /// Memory for chunks, in bytes. What is being copied comes on top.
    pub memory_bytes: u64,
    /// Most bytes that one request asks for.
    pub request_bytes: u64,
    /// Most bytes that are fetched ahead at a time; 0: nothing is.
    pub read_ahead_bytes: u64,
    /// How often a request is made whose failure is transient, at most.
    pub tries: u32,
    /// Time before the second try; twice as long before each further one.
    pub wait: Duration,
    /// Where chunks are kept beyond this process.
    pub disk: Option<Arc<DiskCache>>,
}

impl Default for LazyOptions {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            request_bytes: 4 << 20,
            read_ahead_bytes: 16 << 20,
            tries: 3,
            wait: Duration::from_millis(100),
            disk: None,
        }
    }
}
