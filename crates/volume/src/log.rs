//! The way to the bucket that the database's log takes, with bulk left out of it.
//!
//! What is written in bulk would go to the bucket twice: as objects of the log, and as tables. So an object of the log that is
//! as large as a table, and that nobody waits for, is put without its contents; its number is taken, as whoever fences this
//! machine expects it. From then on:
//!
//! - Objects of the log stay empty until the bucket's manifest says that tables have all that was left out: what comes later
//!   is never in the bucket before what came first.
//! - Nothing is durable by the log. A flush writes tables ([`flush`](crate::database::flush)).
//!
//! What a crash leaves is what the database knows from logs that were cleared after their tables were written.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

/// A store whose log has no bulk.
#[derive(Debug)]
pub(crate) struct Log {
    store: Arc<dyn ObjectStore>,
    /// From how many bytes on an object of the log is bulk.
    bulk_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last object of the log that is empty, and that tables may not cover yet.
    left_out: Option<u64>,
    /// Bytes that the log took since somebody waited for a flush.
    unasked_bytes: u64,
}

impl Log {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, bulk_bytes: u64) -> Arc<Self> {
        Arc::new(Self { store, bulk_bytes, state: Mutex::default() })
    }

    /// Somebody waits for what was written: where that comes often, there is no bulk.
    pub(crate) fn is_asked(&self) {
        self.state.lock().unasked_bytes = 0;
    }

    /// Whether the log has not all that was written, so that it is durable by tables only.
    pub(crate) fn leaves_out(&self) -> bool {
        self.state.lock().left_out.is_some()
    }

    /// By the manifest in the bucket, tables have what objects of the log up to this one have.
    pub(crate) fn is_covered(&self, number: u64) {
        let mut state = self.state.lock();
        state.left_out = state.left_out.filter(|&left_out| left_out > number);
    }

    /// What is put for an object of the log.
    fn contents(&self, number: u64, payload: PutPayload) -> PutPayload {
        let mut state = self.state.lock();
        let bytes = payload.content_length() as u64;
        let is_bulk = bytes >= self.bulk_bytes && state.unasked_bytes >= self.bulk_bytes;
        state.unasked_bytes += bytes;
        if bytes > 0 && (is_bulk || state.left_out.is_some()) {
            state.left_out = state.left_out.max(Some(number));
            return PutPayload::new();
        }
        payload
    }
}

/// The number of an object of the log, which lies in `wal`.
fn number(path: &Path) -> Option<u64> {
    let mut parts = path.as_ref().rsplit('/');
    let name = parts.next()?.strip_suffix(".sst")?;
    (parts.next()? == "wal").then(|| name.parse().ok())?
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Log {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let payload = match number(location) {
            Some(number) => self.contents(number, payload),
            None => payload,
        };
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.store.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    use super::*;

    fn put(log: &Log, path: &str, bytes: usize) -> u64 {
        let path = Path::from(path);
        place::runtime::block_on(async {
            log.put(&path, vec![1; bytes].into()).await.unwrap();
            log.head(&path).await.unwrap().size
        })
    }

    fn wal(number: u64) -> String {
        format!("a/db/wal/{number:020}.sst")
    }

    #[test]
    fn bulk_is_left_out_until_tables_have_it() {
        let log = Log::new(Arc::new(InMemory::new()), 100);
        assert_eq!(put(&log, &wal(1), 0), 0);
        assert!(!log.leaves_out());
        // The first of them: nobody knows yet whether somebody waits for it.
        assert_eq!([put(&log, &wal(2), 150), put(&log, &wal(3), 99)], [150, 99]);
        assert!(!log.leaves_out());
        assert_eq!(put(&log, &wal(4), 100), 0);
        assert!(log.leaves_out());
        // What comes later is not there before it.
        assert_eq!(put(&log, &wal(5), 1), 0);
        log.is_covered(4);
        assert!(log.leaves_out());
        assert_eq!(put(&log, &wal(6), 1), 0);
        log.is_covered(7);
        assert!(!log.leaves_out());
        assert_eq!(put(&log, &wal(7), 1), 1);
        // Where somebody waits again and again, there is no bulk.
        log.is_asked();
        assert_eq!([put(&log, &wal(8), 150), put(&log, &wal(9), 150)], [150, 0]);
    }

    #[test]
    fn other_objects_are_put_as_they_are() {
        let log = Log::new(Arc::new(InMemory::new()), 100);
        assert_eq!(put(&log, &wal(1), 150), 150);
        assert_eq!(put(&log, &wal(2), 150), 0);
        for path in ["a/db/compacted/01J.sst", "a/db/manifest/00000000000000000001.manifest"] {
            assert_eq!(put(&log, path, 150), 150);
        }
        assert_eq!(number(&Path::from("a/db/wal/x.sst")), None);
        assert_eq!(number(&Path::from("a/db/walls/00000000000000000001.sst")), None);
        assert_eq!(number(&Path::from("wal/00000000000000000012.sst")), Some(12));
    }
}
