//! A simulated object store. A seed decides the fate of each request: delays, lost requests, lost answers, puts that are
//! executed later or twice, partitions, and crashes of machines. Its clock jumps. Objects have the times at which they
//! were put.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use diskwright_remote::volume::Location;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use tokio::time::Instant;

/// One of this many requests has a fault.
const FAULT_ONE_IN: u32 = 25;
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
    /// Digest of all requests and fates, to compare runs.
    trace: u64,
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
        let result = self.kept.put_opts(path, payload, options).await?;
        self.state.lock().touch(path);
        Ok(result)
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

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let time = self.world.state.lock().times.get(&meta.location).copied();
        meta.last_modified = time.unwrap_or(START);
        meta
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
        self.world.state.lock().touch(location);
        self.request(2, self.world.kept.put_multipart_opts(location, options)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let mut result = self.request(3, self.world.kept.get_opts(location, options)).await?;
        result.meta = self.dated(result.meta);
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
        self.world.kept.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let dated = Self { world: Arc::clone(&self.world), machine: self.machine };
        let list = self.world.kept.list(prefix);
        list.map(move |meta| meta.map(|meta| dated.dated(meta))).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut list = self.request(5, self.world.kept.list_with_delimiter(prefix)).await?;
        list.objects = list.objects.into_iter().map(|meta| self.dated(meta)).collect();
        Ok(list)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.world.state.lock().touch(to);
        self.request(6, self.world.kept.copy_opts(from, to, options)).await
    }
}
