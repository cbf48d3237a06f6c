//! A simulated object store. A seed decides the fate of each request: delays, lost requests, lost answers, puts that are
//! executed later or twice, partitions, and crashes of machines. Lists may be stale. Its clock jumps. Objects have the
//! times at which they were put.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use diskwright_remote::volume::Location;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use parking_lot::Mutex;
use tokio::time::Instant;

/// One of this many requests has a fault.
const FAULT_ONE_IN: u32 = 25;
/// One of this many lists is stale.
const STALE_ONE_IN: u32 = 4;
/// Maximum age of a stale list. The database removes manifests and log objects after 5 minutes.
const STALE_TIME: Duration = Duration::from_secs(240);
/// Number of changes that half of the stale lists lack at most.
const STALE_CHANGES_FEW: usize = 8;
/// Start of the store's clock: 2026-01-01.
const START: DateTime<Utc> = DateTime::from_timestamp(1_767_225_600, 0).unwrap();
/// Maximum number of requests of a partition.
const PARTITION_REQUESTS_MAX: u32 = 4;

/// The store, the network and the clock that all machines share.
#[derive(Debug)]
pub(super) struct SimulatedWorld {
    kept: InMemory,
    state: Mutex<WorldState>,
}

#[derive(Debug)]
struct WorldState {
    random: fastrand::Rng,
    /// Puts that were not answered and are executed at some later time.
    delayed: Vec<(Path, PutPayload, PutOptions)>,
    /// Number of requests after which a machine crashes.
    lives: BTreeMap<u32, u32>,
    /// A machine without network, and the number of its next requests that fail.
    partition: Option<(u32, u32)>,
    /// Number of faults that may still happen.
    faults: u32,
    /// Difference between the clock of the store and that of the runtime.
    clock: TimeDelta,
    /// Instant of the first request.
    start: Option<Instant>,
    /// Times of objects.
    times: BTreeMap<Path, DateTime<Utc>>,
    /// Changes that a stale list may lack, in order.
    changes: VecDeque<ListChange>,
    /// Stale lists are possible if set.
    has_stale_lists: bool,
    /// Digest of all requests and fates, to compare runs.
    trace: u64,
}

/// A put or removal of an object.
#[derive(Debug)]
struct ListChange {
    at: Instant,
    path: Path,
    /// The object before.
    before: Option<ObjectMeta>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestFate {
    Executed,
    Lost,
    AnswerLost,
    Delayed,
    Doubled,
    Crashed,
}

impl SimulatedWorld {
    pub(super) fn new(seed: u64) -> Arc<Self> {
        let state = WorldState {
            random: fastrand::Rng::with_seed(seed),
            delayed: Vec::new(),
            lives: BTreeMap::new(),
            partition: None,
            faults: 0,
            clock: TimeDelta::zero(),
            start: None,
            times: BTreeMap::new(),
            changes: VecDeque::new(),
            has_stale_lists: false,
            trace: 0,
        };
        Arc::new(Self { kept: InMemory::new(), state: Mutex::new(state) })
    }

    /// Returns the location `name`, accessed by a machine.
    pub(super) fn at(self: &Arc<Self>, machine: u32, name: &str) -> Location {
        Location {
            store: Arc::new(SimulatedStore { world: Arc::clone(self), machine }),
            path: Path::from(name),
            address: format!("memory://bucket/{name}").as_str().into(),
        }
    }

    pub(super) fn allow_faults(&self, count: u32) {
        let mut state = self.state.lock();
        state.faults = count;
        state.has_stale_lists = count > 0;
        if count == 0 {
            state.partition = None;
        }
    }

    /// Makes a machine crash after this number of requests.
    pub(super) fn crash_after(&self, machine: u32, requests: u32) {
        self.state.lock().lives.insert(machine, requests);
    }

    pub(super) fn jump_clock(&self, by: TimeDelta) {
        self.state.lock().clock += by;
    }

    pub(super) fn trace(&self) -> u64 {
        self.state.lock().trace
    }

    async fn put(
        &self,
        path: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let before = self.head(path).await;
        let result = self.kept.put_opts(path, payload, options).await?;
        let mut state = self.state.lock();
        state.touch(path);
        state.note_change(path, before);
        Ok(result)
    }

    async fn head(&self, path: &Path) -> Option<ObjectMeta> {
        let meta = self.kept.head(path).await.ok()?;
        Some(self.dated(meta))
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let time = self.state.lock().times.get(&meta.location).copied();
        meta.last_modified = time.unwrap_or(START);
        meta
    }

    /// Returns the objects below a prefix, as they are or were a moment ago.
    async fn list(&self, prefix: Option<&Path>) -> Result<Vec<ObjectMeta>> {
        let stale = self.state.lock().stale_objects();
        let listed = self.kept.list(prefix).map_ok(|meta| (meta.location.clone(), meta));
        let mut listed: BTreeMap<_, _> = listed.try_collect().await?;
        listed.values_mut().for_each(|meta| *meta = self.dated(meta.clone()));
        for (path, before) in stale {
            if prefix.is_some_and(|prefix| !path.prefix_matches(prefix)) {
                continue;
            }
            match before {
                Some(meta) => drop(listed.insert(path, meta)),
                None => drop(listed.remove(&path)),
            }
        }
        Ok(listed.into_values().collect())
    }

    /// Decides the fate of a request, and executes puts that were delayed until now.
    async fn enter(&self, machine: u32, kind: u64, can_delay: bool) -> RequestFate {
        let (fate, yields, late) = self.state.lock().enter(machine, kind, can_delay);
        for (path, payload, options) in late {
            // The machine does not wait for the answer any more.
            let _ = self.put(&path, payload, options).await;
        }
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        fate
    }
}

impl WorldState {
    /// Gives an object the current time of the store.
    fn touch(&mut self, path: &Path) {
        let elapsed = self.start.get_or_insert_with(Instant::now).elapsed();
        self.times.insert(path.clone(), START + elapsed + self.clock);
    }

    fn note_change(&mut self, path: &Path, before: Option<ObjectMeta>) {
        let at = Instant::now();
        while self.changes.front().is_some_and(|change| at - change.at > STALE_TIME) {
            self.changes.pop_front();
        }
        self.changes.push_back(ListChange { at, path: path.clone(), before });
    }

    /// Returns objects as they were before the last changes, which a list may lack.
    fn stale_objects(&mut self) -> BTreeMap<Path, Option<ObjectMeta>> {
        if !self.has_stale_lists || self.random.u32(0..STALE_ONE_IN) > 0 {
            return BTreeMap::new();
        }
        let now = Instant::now();
        let may_lack = |change: &&ListChange| now - change.at <= STALE_TIME;
        let mut count = self.changes.iter().rev().take_while(may_lack).count();
        if self.random.bool() {
            count = count.min(STALE_CHANGES_FEW);
        }
        let count = self.random.usize(..=count);
        self.trace = self.trace.rotate_left(7) ^ count as u64;
        // The oldest of several changes of an object is the last.
        let last = self.changes.iter().rev().take(count);
        last.map(|change| (change.path.clone(), change.before.clone())).collect()
    }

    fn enter(
        &mut self,
        machine: u32,
        kind: u64,
        can_delay: bool,
    ) -> (RequestFate, u32, Vec<(Path, PutPayload, PutOptions)>) {
        let fate = self.fate(machine, can_delay);
        let yields = self.random.u32(0..4);
        let mut late = Vec::new();
        while !self.delayed.is_empty() && self.random.u32(0..8) == 0 {
            late.push(self.delayed.swap_remove(self.random.usize(..self.delayed.len())));
        }
        let step = (u64::from(machine) << 8) ^ (kind << 4) ^ fate as u64;
        self.trace = (self.trace.rotate_left(7) ^ step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (fate, yields, late)
    }

    fn fate(&mut self, machine: u32, can_delay: bool) -> RequestFate {
        if let Some(left) = self.lives.get_mut(&machine) {
            if *left == 0 {
                return RequestFate::Crashed;
            }
            *left -= 1;
        }
        if let Some((of, left)) = &mut self.partition
            && *of == machine
        {
            *left -= 1;
            if *left == 0 {
                self.partition = None;
            }
            return RequestFate::Lost;
        }
        if self.faults == 0 || self.random.u32(0..FAULT_ONE_IN) > 0 {
            return RequestFate::Executed;
        }
        self.faults -= 1;
        match self.random.u32(0..5) {
            0 => {
                self.partition = Some((machine, self.random.u32(1..=PARTITION_REQUESTS_MAX)));
                RequestFate::Lost
            }
            1 if can_delay => RequestFate::Delayed,
            2 if can_delay => RequestFate::Doubled,
            3 => RequestFate::AnswerLost,
            _ => RequestFate::Lost,
        }
    }
}

/// One machine's access to the store.
#[derive(Debug)]
struct SimulatedStore {
    world: Arc<SimulatedWorld>,
    machine: u32,
}

impl SimulatedStore {
    async fn request<T>(&self, kind: u64, execute: impl Future<Output = Result<T>>) -> Result<T> {
        answer(self.world.enter(self.machine, kind, false).await, execute).await
    }
}

async fn answer<T>(fate: RequestFate, execute: impl Future<Output = Result<T>>) -> Result<T> {
    match fate {
        RequestFate::Executed | RequestFate::Doubled => execute.await,
        RequestFate::AnswerLost => {
            // The answer says nothing to the machine.
            let _ = execute.await;
            Err(unanswered())
        }
        RequestFate::Lost | RequestFate::Delayed => Err(unanswered()),
        RequestFate::Crashed => {
            Err(Error::NotSupported { source: "the machine has crashed".into() })
        }
    }
}

fn unanswered() -> Error {
    Error::Generic { store: "simulation", source: "no answer".into() }
}

impl fmt::Display for SimulatedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedStore")
    }
}

#[async_trait]
impl ObjectStore for SimulatedStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        // Only conditional puts may be repeated by a network without harm to the database.
        let can_delay = matches!(options.mode, PutMode::Create);
        let fate = self.world.enter(self.machine, 1, can_delay).await;
        if matches!(fate, RequestFate::Delayed | RequestFate::Doubled) {
            let copy = (location.clone(), payload.clone(), options.clone());
            self.world.state.lock().delayed.push(copy);
        }
        answer(fate, self.world.put(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        {
            let mut state = self.world.state.lock();
            state.touch(location);
            state.note_change(location, None);
        }
        self.request(2, self.world.kept.put_multipart_opts(location, options)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.request(3, self.world.kept.get_opts(location, options)).await?;
        result.meta = self.world.dated(result.meta);
        Ok(result)
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.request(4, self.world.kept.get_ranges(location, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        if self.world.state.lock().lives.get(&self.machine) == Some(&0) {
            return futures_util::stream::iter([Err(unanswered())]).boxed();
        }
        let world = Arc::clone(&self.world);
        let noted = locations.try_filter_map(move |path| {
            let world = Arc::clone(&world);
            async move {
                if let Some(before) = world.head(&path).await {
                    world.state.lock().note_change(&path, Some(before));
                }
                Ok(Some(path))
            }
        });
        self.world.kept.delete_stream(noted.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let this = Self { world: Arc::clone(&self.world), machine: self.machine };
        let prefix = prefix.cloned();
        let list = async move {
            let listed = this.request(7, this.world.list(prefix.as_ref())).await?;
            Ok::<_, Error>(stream::iter(listed.into_iter().map(Ok)))
        };
        stream::once(list).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut list = self.request(5, self.world.kept.list_with_delimiter(prefix)).await?;
        list.objects = list.objects.into_iter().map(|meta| self.world.dated(meta)).collect();
        Ok(list)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let before = self.world.head(to).await;
        {
            let mut state = self.world.state.lock();
            state.touch(to);
            state.note_change(to, before);
        }
        self.request(6, self.world.kept.copy_opts(from, to, options)).await
    }
}
