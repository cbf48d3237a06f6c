//! An in-memory bucket that counts requests, can be slow, can fail, and can stop answering at a given request.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use diskwright_remote::volume::{Location, Options};
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Fault settings and request counters of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Conduct {
    pub(crate) requests: AtomicU64,
    pub(crate) puts: AtomicU64,
    /// Number of the first request that is not answered, from 1; 0 for none.
    pub(crate) ends_at: AtomicU64,
    /// One of this many requests fails once; 0 for none.
    pub(crate) fails_one_in: AtomicU64,
    pub(crate) delay_ms: AtomicU64,
    /// Makes conditional puts overwrite objects.
    pub(crate) ignores_conditions: AtomicBool,
    pub(crate) bulk: BulkConduct,
    pub(crate) lists: ListConduct,
}

/// An older state of the bucket, and the lists that show it.
#[derive(Debug, Default)]
pub(crate) struct ListConduct {
    state: Mutex<Vec<ObjectMeta>>,
    count: AtomicU64,
    stale: AtomicU64,
}

impl ListConduct {
    /// Makes list N stale if bit N is set.
    pub(crate) fn make_stale(&self, lists: u64) {
        self.count.store(0, Ordering::Relaxed);
        self.stale.store(lists, Ordering::Relaxed);
    }

    /// Returns the older state, if the next list is stale.
    fn next(&self, prefix: Option<&Path>) -> Option<Vec<Result<ObjectMeta>>> {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if number >= 64 || self.stale.load(Ordering::Relaxed) >> number & 1 == 0 {
            return None;
        }
        let is_below =
            |meta: &&ObjectMeta| prefix.is_none_or(|prefix| meta.location.prefix_matches(prefix));
        Some(self.state.lock().iter().filter(is_below).cloned().map(Ok).collect())
    }
}

/// Fault settings and counters of requests for bulk objects.
#[derive(Debug, Default)]
pub(crate) struct BulkConduct {
    /// Number of executed puts.
    pub(crate) puts: AtomicU64,
    pub(crate) gets: AtomicU64,
    /// Number of puts that wait at the gate.
    pub(crate) waiting: AtomicU64,
    /// Makes puts wait before they are executed, and before their answer, if it is closed.
    pub(crate) gates: [Mutex<Option<Arc<Semaphore>>>; 2],
    /// Number of next puts that are executed, but answered with an error.
    pub(crate) lost_answers: AtomicU64,
    /// Number of next puts that are not executed.
    pub(crate) lost_puts: AtomicU64,
    /// Number of next puts that are executed and answered with `AlreadyExists`, as if the request was doubled.
    pub(crate) doubled_puts: AtomicU64,
    /// Number of next gets with a wrong byte.
    pub(crate) wrong_gets: AtomicU64,
}

impl BulkConduct {
    /// Closes a gate: 0 is before the execution of puts, 1 before their answers.
    pub(crate) fn close_gate(&self, gate: usize) {
        *self.gates[gate].lock() = Some(Arc::new(Semaphore::new(0)));
    }

    /// Opens a gate for good.
    pub(crate) fn open_gate(&self, gate: usize) {
        if let Some(gate) = self.gates[gate].lock().take() {
            gate.close();
        }
    }

    /// Returns when `count` puts wait.
    pub(crate) fn wait_for_waiting(&self, count: u64) {
        while self.waiting.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    async fn pass(&self, gate: usize) {
        let Some(gate) = self.gates[gate].lock().clone() else { return };
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The gate has no permits, so this returns when it is closed as a semaphore.
        let _ = gate.acquire().await;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    async fn put(&self, execute: impl Future<Output = Result<PutResult>>) -> Result<PutResult> {
        self.pass(0).await;
        if take_one(&self.lost_puts) {
            return Err(failed());
        }
        self.puts.fetch_add(1, Ordering::Relaxed);
        let result = execute.await;
        self.pass(1).await;
        if take_one(&self.lost_answers) {
            return Err(failed());
        }
        if take_one(&self.doubled_puts) {
            return Err(Error::AlreadyExists { path: "bulk".into(), source: "doubled".into() });
        }
        result
    }

    async fn get(&self, execute: impl Future<Output = Result<GetResult>>) -> Result<GetResult> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        let mut result = execute.await?;
        if take_one(&self.wrong_gets) {
            let (meta, range) = (result.meta.clone(), result.range.clone());
            let attributes = result.attributes.clone();
            let mut bytes = result.bytes().await?.to_vec();
            bytes[100] ^= 1;
            let bytes = futures_util::stream::iter([Ok(bytes.into())]);
            let payload = GetResultPayload::Stream(Box::pin(bytes));
            result = GetResult { payload, meta, range, attributes, extensions: Default::default() };
        }
        Ok(result)
    }
}

/// Decrements a counter above 0.
fn take_one(counter: &AtomicU64) -> bool {
    let less = |count: u64| count.checked_sub(1);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}

fn is_bulk(path: &Path) -> bool {
    path.as_ref().contains("/bulk/")
}

/// One machine's access to the bucket.
#[derive(Debug)]
pub(crate) struct Bucket {
    kept: Arc<InMemory>,
    pub(crate) conduct: Arc<Conduct>,
}

impl Bucket {
    pub(crate) fn new() -> Self {
        Self { kept: Arc::new(InMemory::new()), conduct: Arc::default() }
    }

    /// Returns another machine's access to the same bucket, without faults.
    pub(crate) fn another(&self) -> Self {
        Self { kept: Arc::clone(&self.kept), conduct: Arc::default() }
    }

    /// Returns the location `name` in the bucket, accessed by this machine.
    pub(crate) fn at(&self, name: &str) -> Location {
        let store = Arc::new(Self { kept: Arc::clone(&self.kept), conduct: self.conduct.clone() });
        Location {
            store,
            path: Path::from(name),
            address: format!("memory://bucket/{name}").as_str().into(),
        }
    }

    pub(crate) fn puts(&self) -> u64 {
        self.conduct.puts.load(Ordering::Relaxed)
    }

    /// Returns `Err` if the request must not be executed. Otherwise an error may replace the answer.
    async fn enter(&self, is_put: bool) -> Result<ReplyFate> {
        let number = self.conduct.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if is_put {
            self.conduct.puts.fetch_add(1, Ordering::Relaxed);
        }
        let delay = self.conduct.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        let ends_at = self.conduct.ends_at.load(Ordering::Relaxed);
        if ends_at > 0 && number >= ends_at {
            // The last request may be executed, with its answer lost.
            return if number == ends_at && ends_at.is_multiple_of(2) {
                Ok(ReplyFate::Lost)
            } else {
                Err(gone())
            };
        }
        let one_in = self.conduct.fails_one_in.load(Ordering::Relaxed);
        if one_in > 0 && number.is_multiple_of(one_in) {
            return if number.is_multiple_of(2 * one_in) {
                Ok(ReplyFate::Failed)
            } else {
                Err(failed())
            };
        }
        Ok(ReplyFate::Given)
    }
}

/// Fate of the answer to an executed request.
enum ReplyFate {
    Given,
    Failed,
    Lost,
}

impl ReplyFate {
    fn of<T>(&self, result: Result<T>) -> Result<T> {
        match self {
            Self::Given => result,
            Self::Failed => Err(failed()),
            Self::Lost => Err(gone()),
        }
    }
}

/// Returns the permanent error of a machine that has crashed.
fn gone() -> Error {
    Error::NotSupported { source: "the machine has ended".into() }
}

/// Returns a transient error: 503 Slow Down.
fn failed() -> Error {
    Error::Generic { store: "test", source: "503 Slow Down".into() }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bucket")
    }
}

#[async_trait]
impl ObjectStore for Bucket {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        let answer = self.enter(true).await?;
        if self.conduct.ignores_conditions.load(Ordering::Relaxed) {
            options.mode = PutMode::Overwrite;
        }
        let put = self.kept.put_opts(location, payload, options);
        answer.of(if is_bulk(location) { self.conduct.bulk.put(put).await } else { put.await })
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let answer = self.enter(true).await?;
        answer.of(self.kept.put_multipart_opts(location, options).await)
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let answer = self.enter(false).await?;
        let get = self.kept.get_opts(location, options);
        answer.of(if is_bulk(location) { self.conduct.bulk.get(get).await } else { get.await })
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let answer = self.enter(false).await?;
        answer.of(self.kept.get_ranges(location, ranges).await)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.kept.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.conduct.lists.next(prefix) {
            Some(stale) => Box::pin(futures_util::stream::iter(stale)),
            None => self.kept.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let answer = self.enter(false).await?;
        answer.of(self.kept.list_with_delimiter(prefix).await)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let answer = self.enter(true).await?;
        answer.of(self.kept.copy_opts(from, to, options).await)
    }
}

impl Bucket {
    /// Records the state of the bucket that stale lists show.
    pub(crate) fn record_lists(&self) {
        let list = self.kept.list(None).try_collect();
        let list = diskwright_remote::place::runtime::block_on(list).unwrap();
        *self.conduct.lists.state.lock() = list;
    }

    /// Returns the paths of all bulk objects of a volume.
    pub(crate) fn bulk_objects(&self, name: &str) -> Vec<Path> {
        let prefix = Path::from(name).join("bulk");
        let list = self.kept.list(Some(&prefix)).map_ok(|meta| meta.location);
        diskwright_remote::place::runtime::block_on(list.try_collect()).unwrap()
    }
}

/// Returns options with which nearly all writes become bulk objects.
pub(crate) fn bulk_options() -> Options {
    options().bulk_bytes(4096)
}

/// Returns options for tests, with few retries.
pub(crate) fn options() -> Options {
    Options::default().retries(5).cache_bytes(8 << 20)
}
