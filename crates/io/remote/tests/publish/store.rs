//! An in-memory store for tests: it injects faults, has its own clock, and can schedule several users in turns.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::DateTime;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result,
};
use parking_lot::Mutex;

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestKind {
    Put,
    Get,
    Delete,
    List,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Serve,
    /// A transient error.
    Fail,
    /// A permanent error: all later requests of a killed process get this.
    Refuse,
    /// A body truncated to its first half.
    Short,
    /// A body with one changed byte.
    Damage,
    /// A listing without the objects that were put since the clock last advanced.
    Old,
}

/// Chooses the outcome of a request by its number, kind and path.
pub(crate) type Hook = Arc<dyn Fn(usize, RequestKind, &Path) -> Verdict + Send + Sync>;

#[derive(Default)]
struct StoreState {
    now_ms: i64,
    times: HashMap<Path, i64>,
    requests: usize,
    bytes_put: u64,
}

/// A handle of the store. Several handles may share its memory.
#[derive(Clone)]
pub(crate) struct Watched {
    memory: Arc<InMemory>,
    state: Arc<Mutex<StoreState>>,
    hook: Hook,
}

const START_MS: i64 = 400_000_000_000;

impl Watched {
    /// Creates an empty store that serves all requests.
    pub(crate) fn new() -> Self {
        let state = StoreState { now_ms: START_MS, ..StoreState::default() };
        let hook: Hook = Arc::new(|_, _, _| Verdict::Serve);
        Self { memory: Arc::default(), state: Arc::new(Mutex::new(state)), hook }
    }

    /// Returns another handle of this store, with its own hook. Resets the count of requests.
    pub(crate) fn seen_by(
        &self,
        hook: impl Fn(usize, RequestKind, &Path) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.state.lock().requests = 0;
        Self { hook: Arc::new(hook), ..self.clone() }
    }

    /// Advances the store's clock.
    pub(crate) fn hours_pass(&self, hours: i64) {
        self.state.lock().now_ms += hours * 3_600_000;
    }

    /// Returns the number of requests, of all handles, since the last call of `seen_by`.
    pub(crate) fn requests(&self) -> usize {
        self.state.lock().requests
    }

    /// Returns the number of bytes put since the last call.
    pub(crate) fn bytes_put(&self) -> u64 {
        std::mem::take(&mut self.state.lock().bytes_put)
    }

    /// Returns all objects whose paths contain `part`, with their bodies.
    pub(crate) fn objects(&self, part: &str) -> Vec<(Path, Bytes)> {
        remote::place::runtime::block_on(async {
            let all: Vec<ObjectMeta> = self.memory.list(None).try_collect().await.unwrap();
            let mut found = Vec::new();
            for meta in all.into_iter().filter(|meta| meta.location.as_ref().contains(part)) {
                let body = self.memory.get(&meta.location).await.unwrap().bytes().await.unwrap();
                found.push((meta.location, body));
            }
            found
        })
    }

    /// Changes an object directly, without a request; `None` removes it.
    pub(crate) fn change(&self, path: &Path, body: Option<Vec<u8>>) {
        {
            let mut state = self.state.lock();
            let now_ms = state.now_ms;
            state.times.insert(path.clone(), now_ms);
        }
        remote::place::runtime::block_on(async {
            match body {
                Some(body) => drop(self.memory.put(path, body.into()).await.unwrap()),
                None => self.memory.delete(path).await.unwrap(),
            }
        });
    }

    /// Returns the outcome of a request. The hook may access the store itself.
    fn verdict(&self, request: RequestKind, path: &Path) -> Result<Verdict> {
        let number = {
            let mut state = self.state.lock();
            state.requests += 1;
            state.requests - 1
        };
        match (self.hook)(number, request, path) {
            Verdict::Fail => Err(Error::Generic { store: "watched", source: "it fails".into() }),
            Verdict::Refuse => {
                Err(Error::PermissionDenied { path: path.to_string(), source: "killed".into() })
            }
            verdict => Ok(verdict),
        }
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let time = self.state.lock().times.get(&meta.location).copied().unwrap_or(START_MS);
        meta.last_modified = DateTime::from_timestamp_millis(time).unwrap();
        meta
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

impl fmt::Display for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watched")
    }
}

fn not_needed<T>(operation: &str) -> Result<T> {
    Err(Error::NotImplemented { operation: operation.into(), implementer: "Watched".into() })
}

#[async_trait]
impl ObjectStore for Watched {
    async fn put_opts(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.verdict(RequestKind::Put, path)?;
        let bytes = payload.content_length() as u64;
        let done = self.memory.put_opts(path, payload, options).await?;
        let mut state = self.state.lock();
        state.bytes_put += bytes;
        let now_ms = state.now_ms;
        state.times.insert(path.clone(), now_ms);
        Ok(done)
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        not_needed("put_multipart")
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        let verdict = self.verdict(RequestKind::Get, path)?;
        let mut found = self.memory.get_opts(path, options).await?;
        found.meta = self.dated(found.meta);
        let (meta, range, attributes) =
            (found.meta.clone(), found.range.clone(), found.attributes.clone());
        let extensions = found.extensions.clone();
        let mut body = found.bytes().await?.to_vec();
        match verdict {
            Verdict::Short => body.truncate(body.len() / 2),
            Verdict::Damage if !body.is_empty() => {
                let middle = body.len() / 2;
                body[middle] ^= 0x55;
            }
            _ => {}
        }
        let payload = GetResultPayload::Stream(stream::iter([Ok(Bytes::from(body))]).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let this = self.clone();
        let delete = move |path: Result<Path>| {
            let this = this.clone();
            async move {
                let path = path?;
                this.verdict(RequestKind::Delete, &path)?;
                this.memory.delete(&path).await?;
                Ok(path)
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let path = prefix.cloned().unwrap_or_default();
        let this = self.clone();
        let list = async move {
            let verdict = this.verdict(RequestKind::List, &path)?;
            let all: Vec<ObjectMeta> = this.memory.list(Some(&path)).try_collect().await?;
            let now_ms = this.state.lock().now_ms;
            let is_shown = |meta: &ObjectMeta| {
                verdict != Verdict::Old || meta.last_modified.timestamp_millis() < now_ms
            };
            let dated = all.into_iter().map(|meta| this.dated(meta));
            let shown: Vec<_> = dated.filter(is_shown).map(Ok).collect();
            Ok::<_, Error>(stream::iter(shown))
        };
        stream::once(list).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        not_needed("list_with_delimiter")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        not_needed("copy")
    }
}
