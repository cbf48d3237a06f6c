//! Removes manifests without a name, and chunks and bundles without a manifest.
//!
//! No publication is in progress during a sweep (see [`crate::publish::mark`]), so the set of referenced objects does not
//! change. Recent objects are kept even if nothing refers to them: an interrupted publication may resume. Ages are
//! differences between the store's own timestamps.

use std::time::Duration;

use crate::place::runtime;
use crate::place::store::Location;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};

use crate::publish::digest::Digest;
use crate::publish::error::Error;
use crate::publish::layout::{BUNDLES, MANIFESTS, NAMES, Prefix, digest_of};
use crate::publish::mark::{Mark, Patience, Work};
use crate::publish::open::{digest_named, read};
use crate::publish::request::{remove, retried};

/// Number of objects that are removed before the mark is checked again.
const BATCH: usize = 1000;

/// Number of folders listed concurrently. Bounds memory use.
const LISTS: usize = 4;

/// Options for sweeping.
#[derive(Clone, Copy, Debug)]
pub struct SweepOptions {
    /// Minimum age of unreferenced objects to remove.
    pub older_than: Duration,
    /// Only reports what would be removed.
    pub dry_run: bool,
    /// Time limits for waiting for others.
    pub patience: Patience,
    /// Number of concurrent requests.
    pub requests: usize,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self {
            older_than: Duration::from_secs(24 * 3600),
            dry_run: false,
            patience: Patience::default(),
            requests: 16,
        }
    }
}

/// Objects removed, or to be removed in a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Swept {
    /// Manifests kept: they have a name or are recent.
    pub manifests_kept: u64,
    /// Manifests removed.
    pub manifests_removed: u64,
    /// Chunks kept.
    pub chunks_kept: u64,
    /// Chunks kept although unreferenced, because they are recent.
    pub chunks_young: u64,
    /// Chunks removed.
    pub chunks_removed: u64,
    /// Metadata bundles removed.
    pub bundles_removed: u64,
    /// Total size of the removed objects in bytes.
    pub bytes_removed: u64,
}

/// Removes manifests without a name, and chunks that no manifest lists.
///
/// # Errors
/// If a publication runs for longer than [`Patience`] allows, a manifest cannot be read, or the store fails. Nothing is
/// removed if a manifest cannot be read, because its chunks are unknown.
pub fn sweep(location: &Location, options: &SweepOptions) -> Result<Swept, Error> {
    let prefix = Prefix::new(location);
    runtime::block_on(async {
        let mut mark = Mark::enter(&prefix, Work::Sweep, options.patience).await?;
        let sweep = Sweep { prefix: &prefix, options, now_ms: mark.now_ms };
        let swept = sweep.run(&mut mark).await;
        mark.leave().await;
        swept
    })
}

struct Sweep<'a> {
    prefix: &'a Prefix,
    options: &'a SweepOptions,
    now_ms: i64,
}

/// Sorted first eight bytes of the digests in use. A collision only keeps an object that could be removed.
struct UsedDigests(Vec<u64>);

impl UsedDigests {
    fn has(&self, digest: Digest) -> bool {
        self.0.binary_search(&start_of(digest)).is_ok()
    }
}

fn start_of(digest: Digest) -> u64 {
    let [start, ..] = digest.0.as_chunks::<8>().0 else { unreachable!("a digest has 32 bytes") };
    u64::from_be_bytes(*start)
}

impl Sweep<'_> {
    async fn run(&self, mark: &mut Mark<'_>) -> Result<Swept, Error> {
        let mut swept = Swept::default();
        let (kept, gone) = self.manifests().await?;
        swept.manifests_kept = kept.len() as u64;
        // All manifests are read before anything is removed.
        let named = self.objects_named(&kept).await?;
        // A manifest is removed before its chunks.
        for manifests in gone.chunks(BATCH) {
            self.remove(manifests, mark).await?;
            swept.manifests_removed += manifests.len() as u64;
            swept.bytes_removed += manifests.iter().map(|meta| meta.size).sum::<u64>();
        }
        self.bundles(&named, mark, &mut swept).await?;
        let list = |first| async move { self.list(&self.prefix.shard(first)).await };
        let mut folders = stream::iter(0..=u8::MAX).map(list).buffered(LISTS);
        while let Some(objects) = folders.next().await {
            self.folder(objects?, &named, mark, &mut swept).await?;
        }
        Ok(swept)
    }

    fn is_old(&self, meta: &ObjectMeta) -> bool {
        let age_ms = self.now_ms.saturating_sub(meta.last_modified.timestamp_millis());
        u128::try_from(age_ms).is_ok_and(|age_ms| age_ms >= self.options.older_than.as_millis())
    }

    async fn list(&self, folder: &Path) -> Result<Vec<ObjectMeta>, Error> {
        let store = &self.prefix.store;
        let list = || store.list(Some(folder)).try_collect();
        retried(list).await.map_err(Error::store("list", folder))
    }

    /// Returns the manifests to keep and those to remove.
    async fn manifests(&self) -> Result<(Vec<Digest>, Vec<ObjectMeta>), Error> {
        let mut named = Vec::new();
        for object in self.list(&self.prefix.folder(NAMES)).await? {
            let name = object.location.filename().unwrap_or_default();
            named.extend(digest_named(self.prefix, name).await?);
        }
        named.sort_unstable();
        named.dedup();
        let (mut kept, mut gone) = (named.clone(), Vec::new());
        for object in self.list(&self.prefix.folder(MANIFESTS)).await? {
            match digest_of(&object.location) {
                Some(digest) if named.binary_search(&digest).is_ok() => {}
                Some(_) if self.is_old(&object) => gone.push(object),
                Some(digest) => kept.push(digest),
                // The object is not a manifest: leave it.
                None => {}
            }
        }
        Ok((kept, gone))
    }

    /// Returns the chunks and bundles that these manifests list.
    async fn objects_named(&self, manifests: &[Digest]) -> Result<UsedDigests, Error> {
        let mut named = Vec::new();
        for digest in manifests {
            let manifest = read(self.prefix, *digest).await?;
            let digests = manifest.digests().iter().copied().chain(manifest.bundle());
            named.extend(digests.map(start_of));
            named.sort_unstable();
            named.dedup();
        }
        Ok(UsedDigests(named))
    }

    /// Removes the unreferenced old bundles.
    async fn bundles(
        &self,
        named: &UsedDigests,
        mark: &mut Mark<'_>,
        swept: &mut Swept,
    ) -> Result<(), Error> {
        let mut gone = self.list(&self.prefix.folder(BUNDLES)).await?;
        gone.retain(|object| {
            digest_of(&object.location).is_some_and(|digest| !named.has(digest))
                && self.is_old(object)
        });
        for bundles in gone.chunks(BATCH) {
            self.remove(bundles, mark).await?;
            swept.bundles_removed += bundles.len() as u64;
            swept.bytes_removed += bundles.iter().map(|meta| meta.size).sum::<u64>();
        }
        Ok(())
    }

    /// Removes the unreferenced old chunks of one folder.
    async fn folder(
        &self,
        objects: Vec<ObjectMeta>,
        named: &UsedDigests,
        mark: &mut Mark<'_>,
        swept: &mut Swept,
    ) -> Result<(), Error> {
        let mut gone = Vec::new();
        for object in objects {
            let Some(digest) = digest_of(&object.location) else { continue };
            let is_named = named.has(digest);
            if !is_named && self.is_old(&object) {
                gone.push(object);
            } else {
                swept.chunks_kept += 1;
                swept.chunks_young += u64::from(!is_named);
            }
        }
        for chunks in gone.chunks(BATCH) {
            self.remove(chunks, mark).await?;
            swept.chunks_removed += chunks.len() as u64;
            swept.bytes_removed += chunks.iter().map(|meta| meta.size).sum::<u64>();
        }
        mark.renew_if_due().await
    }

    /// Removes objects after checking that the mark is still valid.
    async fn remove(&self, objects: &[ObjectMeta], mark: &mut Mark<'_>) -> Result<(), Error> {
        if self.options.dry_run {
            return Ok(());
        }
        mark.renew_if_due().await?;
        let store = &*self.prefix.store;
        let remove = |object: &ObjectMeta| {
            let path = object.location.clone();
            async move { remove(store, &path).await }
        };
        let removing = stream::iter(objects.iter().map(remove));
        removing.buffer_unordered(self.options.requests).try_collect().await
    }
}
