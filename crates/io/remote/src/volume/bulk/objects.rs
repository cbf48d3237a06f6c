//! Puts and gets of bulk objects. They are read in aligned parts, which are cached in memory and on disk. Each block is verified
//! each time it is read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use moka::future::Cache;
use moka::policy::EvictionPolicy;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore, PutMode, PutOptions, PutPayload};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::volume::bulk::kept::KeptParts;
use crate::volume::bulk::{OBJECT_BYTES_MAX, OBJECTS, ObjectName, Reference, checksum};
use crate::volume::marker::Marker;
use crate::volume::{Location, Options, VolumeError};

/// Unit of gets and of the cache, as for tables.
const PART_BYTES: u64 = 64 << 10;
/// Maximum number of unneeded parts between two needed ones that one get includes. A request costs more than these.
const GAP_PARTS: u64 = 8;
/// Maximum size of a get in parts. Longer ranges are fetched by several gets at the same time.
const GET_PARTS_MAX: u64 = 32;
/// Maximum number of gets of one read at the same time.
const GETS_MAX: usize = 8;

/// Maximum number of prefetches at the same time.
const PREFETCHES_MAX: usize = 8;
/// Pauses between two attempts of a put: the first one, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Number of retries of a get. The library of the store also repeats requests.
const GET_RETRIES: u32 = 4;

/// A part of an object.
type PartKey = (ObjectName, u64);

/// The bulk objects of a volume and of the volumes it was cloned from.
#[derive(Clone)]
pub(crate) struct BulkObjects {
    store: Arc<dyn ObjectStore>,
    own: Path,
    /// Volumes that this one was cloned from, each with the largest epoch of its objects. Epochs increase.
    origins: Vec<(Path, u64)>,
    block_bytes: u64,
    retries: u32,
    parts: Cache<PartKey, Bytes>,
    kept: Option<KeptParts>,
    coming: Arc<ComingParts>,
    /// Objects whose references may not be in the database yet.
    unsettled: Arc<Mutex<BTreeSet<ObjectName>>>,
    /// Permits for prefetches.
    ahead: Arc<Semaphore>,
}

/// A block to read: its reference, and its index in the buffer of the caller.
pub(crate) type WantedBlock = (Reference, usize);

impl BulkObjects {
    pub(crate) fn new(at: &Location, marker: &Marker, options: &Options) -> Self {
        let weigh = |_: &PartKey, part: &Bytes| u32::try_from(part.len()).unwrap_or(u32::MAX);
        let parts = Cache::builder()
            .max_capacity(options.cache_bytes)
            .weigher(weigh)
            // Prefetched parts were not used yet, so the frequency of use says nothing about them.
            .eviction_policy(EvictionPolicy::lru())
            .build();
        let origins =
            marker.origins.iter().map(|origin| (Path::from(origin.path.as_str()), origin.epoch));
        Self {
            store: Arc::clone(&at.store),
            own: at.path.clone(),
            origins: origins.collect(),
            block_bytes: marker.block_bytes.into(),
            retries: options.retries,
            parts,
            kept: KeptParts::open(marker, options, PART_BYTES.max(marker.block_bytes.into())),
            coming: Arc::default(),
            unsettled: Arc::default(),
            ahead: Arc::new(Semaphore::new(PREFETCHES_MAX)),
        }
    }

    /// Returns the path of an object. Objects of clones are located at the first origin whose epoch is not smaller.
    pub(crate) fn path(&self, name: ObjectName) -> Path {
        let origin = self.origins.iter().find(|(_, epoch)| name.epoch <= *epoch);
        let volume = origin.map_or(&self.own, |(path, _)| path);
        volume.clone().join(OBJECTS).join(name.epoch.to_string()).join(name.digits())
    }

    /// Puts an object and returns its name. Each attempt has a new name, so a late put of an earlier attempt replaces
    /// nothing.
    ///
    /// # Errors
    /// If all attempts fail.
    pub(crate) async fn put(
        &self,
        epoch: u64,
        data: PutPayload,
    ) -> Result<ObjectName, VolumeError> {
        use object_store::Error::{AlreadyExists, Generic, Precondition};
        let mut pauses = pauses(self.retries);
        loop {
            let name = ObjectName::new(epoch);
            let path = self.path(name);
            self.unsettled.lock().insert(name);
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let Err(source) = self.store.put_opts(&path, data.clone(), options).await else {
                return Ok(name);
            };
            // It never gets a reference.
            self.settled(name);
            // An existing object may be from this attempt: the library of the store repeats requests.
            let is_retried =
                matches!(source, Generic { .. } | AlreadyExists { .. } | Precondition { .. });
            match pauses.next().filter(|_| is_retried) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(VolumeError::Object { path: path.to_string(), source }),
            }
        }
    }

    /// Notes that the references of an object are in the database.
    pub(crate) fn settled(&self, name: ObjectName) {
        self.unsettled.lock().remove(&name);
    }

    /// Returns the objects whose references may not be in the database yet.
    pub(crate) fn unsettled(&self) -> BTreeSet<ObjectName> {
        self.unsettled.lock().clone()
    }

    /// Reads blocks of any objects into `buf`, which is a sequence of blocks.
    ///
    /// # Errors
    /// If an object is missing, or a block is damaged and still damaged after a second get.
    pub(crate) async fn read(
        &self,
        wanted: &[WantedBlock],
        buf: &mut [u8],
    ) -> Result<(), VolumeError> {
        let parts = self.fetch(wanted, true).await?;
        let mut damaged = Vec::new();
        for &(reference, at) in wanted {
            match self.block(&parts, reference) {
                Ok(block) => self.out(buf, at).copy_from_slice(block),
                Err(_) => damaged.push((reference, at)),
            }
        }
        if damaged.is_empty() {
            return Ok(());
        }
        for (reference, _) in &damaged {
            self.parts.invalidate(&self.part_of(*reference)).await;
        }
        // The part on disk may be as damaged as the first get.
        let parts = self.fetch(&damaged, false).await?;
        for (reference, at) in damaged {
            let block = self.block(&parts, reference).map_err(VolumeError::Damaged)?;
            self.out(buf, at).copy_from_slice(block);
        }
        Ok(())
    }

    fn out<'a>(&self, buf: &'a mut [u8], at: usize) -> &'a mut [u8] {
        &mut buf[at * self.block_bytes as usize..][..self.block_bytes as usize]
    }

    fn part_of(&self, reference: Reference) -> PartKey {
        (reference.object, u64::from(reference.index) * self.block_bytes / self.part_bytes())
    }

    /// Returns the size of a part, which contains at least one block.
    fn part_bytes(&self) -> u64 {
        PART_BYTES.max(self.block_bytes)
    }

    /// Returns a verified block, or a description of the damage.
    fn block<'a>(
        &self,
        parts: &'a BTreeMap<PartKey, Bytes>,
        reference: Reference,
    ) -> Result<&'a [u8], String> {
        let Reference { object, index, .. } = reference;
        let key = self.part_of(reference);
        let skip = u64::from(index) * self.block_bytes - key.1 * self.part_bytes();
        let part = parts.get(&key).map_or(&[][..], |part| part);
        let block =
            part.get(skip as usize..).and_then(|rest| rest.get(..self.block_bytes as usize));
        let Some(block) = block else {
            return Err(format!("object {object} ends before block {index}"));
        };
        let found = checksum(block);
        if found == reference.checksum {
            return Ok(block);
        }
        Err(format!(
            "object {object}, block {index}: wrong checksum (expected {:#018x}, found {found:#018x})",
            reference.checksum
        ))
    }

    /// Returns the right to prefetch, or `None` if there are enough prefetches.
    pub(crate) fn prefetch_permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.ahead).try_acquire_owned().ok()
    }

    /// Loads the parts that contain these blocks into the cache.
    pub(crate) async fn prefetch(&self, wanted: &[WantedBlock]) -> Result<(), VolumeError> {
        self.fetch(wanted, true).await.map(drop)
    }

    /// Returns all parts that contain these blocks, from a cache or the store. `use_kept` permits the cache on disk.
    async fn fetch(
        &self,
        wanted: &[WantedBlock],
        use_kept: bool,
    ) -> Result<BTreeMap<PartKey, Bytes>, VolumeError> {
        let mut found = BTreeMap::new();
        let mut missing: BTreeSet<_> = wanted.iter().map(|it| self.part_of(it.0)).collect();
        if let Some(key) = missing.iter().find(|it| it.1 * self.part_bytes() >= OBJECT_BYTES_MAX) {
            return Err(VolumeError::Damaged(format!(
                "the database refers to a block past the end of object {}",
                key.0
            )));
        }
        loop {
            for key in std::mem::take(&mut missing) {
                match self.cached(key, use_kept).await {
                    Some(part) => drop(found.insert(key, part)),
                    None => {
                        missing.insert(key);
                    }
                }
            }
            if missing.is_empty() {
                return Ok(found);
            }
            // Parts that another task gets are not requested again.
            let mut ended = pin!(self.coming.ended.notified());
            ended.as_mut().enable();
            let Some(claimed) = self.coming.claim(&missing) else {
                ended.await;
                continue;
            };
            let mut gets = stream::iter(gets(&claimed.parts))
                .map(|(object, parts)| self.get(object, parts))
                .buffer_unordered(GETS_MAX);
            while let Some(parts) = gets.try_next().await? {
                for (key, part) in parts {
                    if let Some(kept) = &self.kept {
                        kept.put(key, &part).await;
                    }
                    self.parts.insert(key, part.clone()).await;
                    found.insert(key, part);
                }
            }
            // Parts of a short object do not exist.
            missing.retain(|key| claimed.parts.binary_search(key).is_err());
        }
    }

    /// Returns a part from memory or from the disk.
    async fn cached(&self, key: PartKey, use_kept: bool) -> Option<Bytes> {
        if let Some(part) = self.parts.get(&key).await {
            return Some(part);
        }
        let part = self.kept.as_ref().filter(|_| use_kept)?.get(key).await?;
        self.parts.insert(key, part.clone()).await;
        Some(part)
    }

    /// Gets adjacent parts with one request. An object that is too short has fewer.
    async fn get(
        &self,
        object: ObjectName,
        parts: Range<u64>,
    ) -> Result<Vec<(PartKey, Bytes)>, VolumeError> {
        let path = self.path(object);
        let bytes = parts.start * self.part_bytes()..parts.end * self.part_bytes();
        let mut pauses = pauses(GET_RETRIES);
        let got = loop {
            let source = match self.get_once(&path, bytes.clone()).await {
                Ok(got) => break got,
                Err(source) => source,
            };
            let is_retried = matches!(source, object_store::Error::Generic { .. });
            match pauses.next().filter(|_| is_retried) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(VolumeError::Object { path: path.to_string(), source }),
            }
        };
        let len = got.iter().map(|part| part.len() as u64).sum::<u64>();
        if len > bytes.end - bytes.start {
            let what = format!("the store returned {len} bytes of object {object} for {bytes:?}");
            return Err(VolumeError::Damaged(what));
        }
        Ok(parts.map(|part| (object, part)).zip(got.into_iter().map(Bytes::from)).collect())
    }

    /// Gets a range of an object as a sequence of parts. Each part has its own memory, because a slice would keep the
    /// whole answer. Stops after more bytes than requested.
    async fn get_once(&self, path: &Path, bytes: Range<u64>) -> object_store::Result<Vec<Vec<u8>>> {
        let (size, wanted) = (self.part_bytes() as usize, bytes.end - bytes.start);
        let options = GetOptions::new().with_range(Some(bytes));
        let mut answer = self.store.get_opts(path, options).await?.into_stream();
        let (mut parts, mut len) = (Vec::new(), 0);
        while len <= wanted {
            let Some(piece) = answer.try_next().await? else { break };
            append(&mut parts, size, &piece);
            len += piece.len() as u64;
        }
        Ok(parts)
    }
}

/// Appends bytes to a sequence of parts of the same size; the last one may be shorter.
fn append(parts: &mut Vec<Vec<u8>>, size: usize, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match parts.last_mut().filter(|last| last.len() < size) {
            Some(last) => {
                let (piece, rest) = bytes.split_at(bytes.len().min(size - last.len()));
                last.extend_from_slice(piece);
                bytes = rest;
            }
            None => parts.push(Vec::with_capacity(size)),
        }
    }
}

/// Parts that are being fetched.
#[derive(Default)]
struct ComingParts {
    parts: Mutex<BTreeSet<PartKey>>,
    /// Signals the end of gets.
    ended: Notify,
}

impl ComingParts {
    /// Returns those of `missing` that no other task fetches; `None` if there are none.
    fn claim(&self, missing: &BTreeSet<PartKey>) -> Option<ClaimedParts<'_>> {
        let mut coming = self.parts.lock();
        let parts: Vec<_> = missing.iter().copied().filter(|key| coming.insert(*key)).collect();
        drop(coming);
        if parts.is_empty() { None } else { Some(ClaimedParts { coming: self, parts }) }
    }
}

/// Parts that one task fetches, in order.
struct ClaimedParts<'a> {
    coming: &'a ComingParts,
    parts: Vec<PartKey>,
}

impl Drop for ClaimedParts<'_> {
    fn drop(&mut self) {
        let mut coming = self.coming.parts.lock();
        coming.retain(|key| self.parts.binary_search(key).is_err());
        drop(coming);
        self.coming.ended.notify_waiters();
    }
}

/// Returns the pauses before the retries of a request.
fn pauses(retries: u32) -> impl Iterator<Item = Duration> {
    (0..retries).map(|retry| PAUSE_MAX.min(PAUSE_FIRST * 2_u32.pow(retry.min(10))))
}

/// Joins sorted parts into gets: parts of one object, with small gaps, up to the maximum size.
fn gets(parts: &[PartKey]) -> Vec<(ObjectName, Range<u64>)> {
    let mut gets: Vec<(ObjectName, Range<u64>)> = Vec::new();
    for &(object, part) in parts {
        match gets.last_mut() {
            Some((last, range))
                if *last == object
                    && part - range.end <= GAP_PARTS
                    && part + 1 - range.start <= GET_PARTS_MAX =>
            {
                range.end = part + 1;
            }
            _ => gets.push((object, part..part + 1)),
        }
    }
    gets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_any_pieces_is_split_into_parts() {
        let bytes: Vec<u8> = (0..=255).collect();
        for piece in 1..=256 {
            let mut parts = Vec::new();
            bytes.chunks(piece).for_each(|piece| append(&mut parts, 64, piece));
            assert!(parts.iter().all(|part| part.len() == 64), "pieces of {piece}");
            assert_eq!(parts.concat(), bytes, "pieces of {piece}");
        }
        let mut short = vec![vec![1; 60]];
        append(&mut short, 64, &[2; 5]);
        assert_eq!(short.iter().map(Vec::len).collect::<Vec<_>>(), [64, 1]);
    }

    #[test]
    fn adjacent_parts_become_one_get_across_small_gaps() {
        let [a, b] = [1, 2].map(|number| ObjectName { epoch: 1, number });
        let parts = [(a, 0), (a, 1), (a, 10), (a, 20), (b, 20), (b, 21)];
        assert_eq!(gets(&parts), [(a, 0..11), (a, 20..21), (b, 20..22)]);
        let long: Vec<_> = (0..100).map(|part| (a, part)).collect();
        assert_eq!(gets(&long), [(a, 0..32), (a, 32..64), (a, 64..96), (a, 96..100)]);
        assert_eq!(gets(&[]), []);
    }
}
