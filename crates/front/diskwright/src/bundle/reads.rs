//! Records the reads of an image, and those that only a reader of a remote image requests.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, ContentKind};
use parking_lot::Mutex;
use remote::publish::record::RecordingReads;

use super::order::UNIT_BYTES;

/// Maximum number of requests that are recorded.
const ASKED_MAX: usize = 1 << 16;

/// A device that records its reads and behaves as a remote one: code that reads in parallel there, such as the search for
/// the end of a log, requests all blocks that it may need.
pub(super) struct RemoteReads {
    inner: Arc<dyn BlockDevice>,
    reads: RecordingReads,
    asked: Mutex<Vec<Range<u64>>>,
}

impl RemoteReads {
    pub(super) fn new(inner: &Arc<dyn BlockDevice>) -> Self {
        let reads = RecordingReads::new(Arc::clone(inner));
        Self { inner: Arc::clone(inner), reads, asked: Mutex::default() }
    }

    /// Returns the parts that were read so far, in the order of first access, and the single blocks that were requested.
    /// Larger requests are those of read-ahead, which depends on the size of regions.
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.reads.ranges().into_iter().chain(self.asked.lock().clone())
    }
}

impl BlockDevice for RemoteReads {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.reads.read_at(offset, buf)
    }

    fn has_read_ahead(&self) -> bool {
        true
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.inner.read_ahead(offset, len, content);
        let mut asked = self.asked.lock();
        if len <= UNIT_BYTES && asked.len() < ASKED_MAX {
            asked.push(offset..offset.saturating_add(len));
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}
