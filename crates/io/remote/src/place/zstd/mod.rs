//! Images compressed as seekable zstd: independent frames, and a seek table at the end.

mod table;

use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use disk::BlockDevice;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use structured_zstd::decoding::{ContentChecksum, FrameDecoder, StreamingDecoder};
use thiserror::Error;

use crate::place::lazy::{FetchError, Pieces, RangeSource};
use table::{FrameLocation, FrameTable};

/// Minimum and maximum of the fetch unit, in bytes.
const CHUNK_BYTES: Range<u64> = 64 << 10..4 << 20;

/// The reason why a file cannot be read as seekable zstd.
#[derive(Debug, Error)]
pub enum ZstdError {
    /// The underlying device failed.
    #[error("{name}: {source}")]
    Read {
        /// Name of the file.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The file has no seek table.
    #[error(
        "{name}: the file has no seek table, so each read would decompress all of it; decompress \
         the file, or create one with build or convert --output zstd"
    )]
    NoTable {
        /// Name of the file.
        name: String,
    },
    /// The seek table is invalid.
    #[error("{name}: damaged seek table: {problem}")]
    Damaged {
        /// Name of the file.
        name: String,
        /// Description of the problem.
        problem: String,
    },
}

/// The decompressed contents of a device.
pub(crate) struct ZstdSource {
    inner: Arc<Inner>,
    identity: String,
}

struct Inner {
    device: Arc<dyn BlockDevice>,
    name: String,
    table: FrameTable,
}

impl ZstdSource {
    /// Opens the compressed image on `device`. `name` is used in messages, and `identity` identifies the compressed
    /// bytes.
    ///
    /// # Errors
    /// If the seek table is missing or invalid.
    pub(crate) fn open(
        device: Arc<dyn BlockDevice>,
        name: &str,
        identity: &str,
    ) -> Result<Self, ZstdError> {
        let table = FrameTable::read(&*device, name)?;
        let identity = format!("{identity} decompressed");
        Ok(Self { inner: Arc::new(Inner { device, name: name.to_owned(), table }), identity })
    }
}

impl RangeSource for ZstdSource {
    fn len(&self) -> u64 {
        self.inner.table.len()
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn fetch(&self, range: Range<u64>) -> BoxFuture<'_, Result<Vec<Bytes>, FetchError>> {
        let chunk_bytes = self.chunk_bytes() as usize;
        let inner = Arc::clone(&self.inner);
        async move {
            // Decompression is CPU-bound, and the device below may wait for requests.
            let work = tokio::task::spawn_blocking(move || inner.fetch(&range, chunk_bytes)).await;
            work.unwrap_or_else(|error| {
                let address = self.inner.name.clone();
                Err(FetchError::Refused { address, reason: error.to_string() })
            })
        }
        .boxed()
    }

    fn chunk_bytes(&self) -> u64 {
        let longest = self.inner.table.longest();
        longest.clamp(CHUNK_BYTES.start, CHUNK_BYTES.end).next_power_of_two()
    }
}

impl Inner {
    fn fetch(&self, range: &Range<u64>, chunk_bytes: usize) -> Result<Vec<Bytes>, FetchError> {
        let mut pieces = Pieces::new(chunk_bytes, range.end - range.start);
        for frame in self.table.frames(range) {
            let contents = self.frame(&frame).map_err(|error| FetchError::Refused {
                address: self.name.clone(),
                reason: format!("the frame at byte {}: {error}", frame.stored.start),
            })?;
            let start = range.start.max(frame.contents.start) - frame.contents.start;
            let end = range.end.min(frame.contents.end) - frame.contents.start;
            pieces.extend(&contents[start as usize..end as usize]);
        }
        Ok(pieces.finish())
    }

    /// Decompresses a frame and checks its length against the table.
    fn frame(&self, frame: &FrameLocation) -> io::Result<Vec<u8>> {
        let mut stored = vec![0; (frame.stored.end - frame.stored.start) as usize];
        self.device.read_at(frame.stored.start, &mut stored)?;
        let len = frame.contents.end - frame.contents.start;
        let mut contents = Vec::with_capacity(len as usize);
        let mut decoder = FrameDecoder::new();
        decoder.set_content_checksum(ContentChecksum::Verify);
        let mut reader = StreamingDecoder::new_with_decoder(&stored[..], decoder);
        reader.by_ref().take(len + 1).read_to_end(&mut contents)?;
        if contents.len() as u64 == len {
            return Ok(contents);
        }
        let found = contents.len();
        Err(io::Error::other(format!("expected {len} bytes, found {found} or more")))
    }
}

#[cfg(test)]
mod tests;
