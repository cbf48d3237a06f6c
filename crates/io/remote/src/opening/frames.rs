//! The stream of a bundle, read and verified frame by frame.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use disk::{BlockDevice, ContentKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::bundle::Tables;
use crate::bundle::format::FRAME_BYTES;
use crate::place::lazy::{FetchError, LazyDevice, RangeSource};

/// Bytes that are fetched with the first frame that the first response does not contain. Doubled from the third one on,
/// up to the maximum: a reader of one file needs few frames, a walk over the tree most of them.
const AHEAD_BYTES: Range<u64> = 256 << 10..4 << 20;

/// The contents of all frames.
pub(super) struct FrameSource {
    inner: Arc<Inner>,
}

struct Inner {
    /// The bundle, as stored.
    stored: LazyDevice,
    tables: Arc<Tables>,
    /// Length of the first response in bytes.
    first_bytes: u64,
    name: String,
    identity: String,
    /// Number of frames fetched outside of the first response.
    fetched: AtomicU32,
}

impl FrameSource {
    pub(super) fn new(
        stored: LazyDevice,
        tables: Arc<Tables>,
        first_bytes: u64,
        name: String,
    ) -> Self {
        let identity = format!("{} stream", stored.identity());
        let fetched = AtomicU32::new(0);
        Self { inner: Arc::new(Inner { stored, tables, first_bytes, name, identity, fetched }) }
    }
}

impl RangeSource for FrameSource {
    fn len(&self) -> u64 {
        self.inner.tables.stream_bytes()
    }

    fn identity(&self) -> &str {
        &self.inner.identity
    }

    fn fetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Bytes>, FetchError>> {
        let inner = Arc::clone(&self.inner);
        async move {
            // Decompression is CPU-bound, and the device below may wait for requests.
            let work = tokio::task::spawn_blocking(move || inner.fetch(&range)).await;
            work.unwrap_or_else(|error| Err(self.inner.refused(&error)))
        }
        .boxed()
    }

    fn chunk_bytes(&self) -> u64 {
        FRAME_BYTES
    }
}

impl Inner {
    /// Returns the contents of whole frames.
    fn fetch(&self, range: &Range<u64>) -> Result<Vec<Bytes>, FetchError> {
        let numbers = range.start / FRAME_BYTES..range.end.div_ceil(FRAME_BYTES);
        let frame = |number| self.frame(number as u32).map(Bytes::from);
        numbers.map(frame).collect::<io::Result<_>>().map_err(|error| self.refused(&error))
    }

    fn frame(&self, number: u32) -> io::Result<Vec<u8>> {
        let (start, len) = self.tables.frame_location(number);
        let end = start + u64::from(len);
        if end > self.first_bytes {
            self.read_ahead(start);
        }
        let mut stored = vec![0; len as usize];
        self.stored.read_at(start, &mut stored)?;
        self.tables.unpack(number, &stored).map_err(io::Error::other)
    }

    /// Fetches the frame at `start` together with the following ones, which are about the next that a walk needs.
    fn read_ahead(&self, start: u64) {
        let before = self.fetched.fetch_add(1, Ordering::Relaxed);
        let bytes = AHEAD_BYTES.start << before.saturating_sub(1).min(8);
        self.stored.read_ahead(start, bytes.min(AHEAD_BYTES.end), ContentKind::Metadata);
    }

    fn refused(&self, error: &dyn std::fmt::Display) -> FetchError {
        FetchError::Refused { address: self.name.clone(), reason: error.to_string() }
    }
}
