//! The database of a volume: its path and settings.

use std::sync::Arc;
use std::time::Duration;

use futures_util::try_join;
use object_store::path::Path;
use slatedb::admin::Admin;
use slatedb::config::{
    CloseOptions, CompactorOptions, DbReaderOptions, FlushType, GarbageCollectorDirectoryOptions,
    GarbageCollectorOptions, ObjectStoreCacheOptions, Settings,
    SizeTieredCompactionSchedulerOptions, SstBlockSize,
};
use slatedb::db_cache::DbCache;
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use slatedb::{
    Db, DbReader, DbReaderMode, VersionedCompactions, VersionedManifest, WalFile, WalReader,
};

use crate::place::runtime;
use crate::volume::clock::VolumeClock;
use crate::volume::marker::{Marker, again};
use crate::volume::{Location, Options, VolumeError};

/// Interval after which writes are sent to the log without a flush. Bounds the loss in a crash.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Number of tables, or of sorted runs of similar size, that are merged into one. Each size class rewrites all data
/// once more, and a read visits fewer runs than this in each class.
const MERGED_TABLES: usize = 8;
/// Maximum number of unmerged tables before writers wait.
const TABLES_MAX: usize = 32;
/// Maximum size of unflushed writes in memory, in bytes, before writers wait.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// Unit of table reads. Requests are expensive and bytes are cheap.
const READ_UNIT: SstBlockSize = SstBlockSize::Block64Kib;
/// Unit of the disk cache, and so of fetches. Table checksums detect damage; damaged parts are fetched again.
const KEPT_BYTES: usize = 256 << 10;
/// Minimum age of manifests and log objects before the database removes them. Lists must not be older than that.
const NAMED_AGE: Duration = Duration::from_secs(300);
/// Minimum age of a table before the database removes it.
const TABLE_AGE: Duration = Duration::from_secs(24 * 3600);
/// Poll interval of views, which must never advance to a later state. SlateDB polls at once if the interval has passed
/// since the first instant of its clock, 262,000 years ago. This interval is longer.
const NEVER: Duration = Duration::from_secs(300_000 * 365 * 24 * 3600);

pub(crate) fn path(at: &Location) -> Path {
    at.path.clone().join("db")
}

/// Opens the database for writing, and fences its previous writer.
pub(crate) async fn open(
    at: &Location,
    marker: &Marker,
    options: &Options,
) -> Result<Db, VolumeError> {
    let clock = Arc::new(VolumeClock::new());
    loop {
        let db = match open_with_clock(at, marker, options, &clock).await {
            Ok(db) => db,
            // With a long log, opening writes tables, which the database rejects if their times are in the past.
            Err(error) => match latest_time(at).await.and_then(|time| clock.advance_to(time)) {
                Ok(true) => continue,
                Ok(false) | Err(_) => return Err(error),
            },
        };
        let newest = newest_time(at, &db.manifest()).await;
        let was_behind = newest.and_then(|time| clock.advance_to(time));
        if let Ok(false) = was_behind {
            return Ok(db);
        }
        // Its tasks may have used earlier times. No data were written, so errors can be ignored.
        let _ = db.close_with_options(unflushed()).await;
        was_behind?;
    }
}

/// Returns the newest time in a database that cannot be opened.
async fn latest_time(at: &Location) -> Result<i64, VolumeError> {
    match admin(at).read_manifest(None).await? {
        Some(manifest) => newest_time(at, &manifest).await,
        None => Ok(i64::MIN),
    }
}

async fn open_with_clock(
    at: &Location,
    marker: &Marker,
    options: &Options,
    clock: &Arc<VolumeClock>,
) -> Result<Db, VolumeError> {
    let settings = Settings {
        flush_interval: Some(LOG_INTERVAL),
        l0_sst_size_bytes: usize::try_from(options.table_bytes).unwrap_or(usize::MAX),
        l0_max_ssts: TABLES_MAX,
        l0_max_ssts_per_key: TABLES_MAX,
        max_unflushed_bytes: WAITING_BYTES_MAX,
        compactor_options: Some(merging()),
        garbage_collector_options: Some(removing()),
        object_store_max_retries: Some(options.retries),
        object_store_cache_options: on_disk(marker, options),
        ..Settings::default()
    };
    let builder = Db::builder(path(at), Arc::clone(&at.store))
        .with_settings(settings)
        .with_sst_block_size(READ_UNIT)
        .with_db_cache(cache(options), 0)
        .with_system_clock(Arc::clone(clock) as _)
        .with_seed(seed());
    Ok(builder.build().await?)
}

/// Returns the newest time in the database, in milliseconds since 1970.
async fn newest_time(at: &Location, manifest: &VersionedManifest) -> Result<i64, VolumeError> {
    let (logged, compaction) = try_join!(last_logged(at, manifest), last_compaction(at))?;
    let tables = manifest.all_sst_views().map(|view| view.sst.id.value().timestamp_ms()).max();
    let compacted = manifest.last_compacted_l0_sst_view_id().map(|id| id.timestamp_ms());
    let ids = [tables, compacted, compaction].into_iter().flatten().max().unwrap_or(0);
    let ids = i64::try_from(ids).unwrap_or(i64::MAX);
    Ok(ids.max(manifest.last_l0_clock_tick()).max(logged))
}

/// Returns the time of the last write in the log that is not in a table.
async fn last_logged(at: &Location, manifest: &VersionedManifest) -> Result<i64, VolumeError> {
    let mut last = i64::MIN;
    // Each opening adds an empty object.
    for file in log_from(at, manifest.replay_after_wal_id() + 1).await?.iter().rev() {
        let times = again(|| async {
            let mut rows = file.iterator().await?;
            let mut last = i64::MIN;
            while let Some(row) = rows.next().await? {
                last = last.max(row.create_ts.unwrap_or(last));
            }
            Ok::<_, slatedb::Error>(last)
        });
        last = last.max(times.await?);
        if last > i64::MIN {
            break;
        }
    }
    Ok(last)
}

/// Returns the listed log objects from the given one on, in ascending order. A stale list lacks the newest ones.
async fn log_from(at: &Location, id: u64) -> Result<Vec<WalFile>, slatedb::Error> {
    let log = WalReader::new(path(at), Arc::clone(&at.store));
    again(|| log.list(id..)).await
}

/// Checks whether the log has writes from the given object on. The numbers of log objects are consecutive, so no list is
/// necessary, which could be stale.
pub(crate) async fn has_log_from(at: &Location, id: u64) -> Result<bool, VolumeError> {
    let mut file = WalReader::new(path(at), Arc::clone(&at.store)).get(id);
    loop {
        // Opening a volume writes an empty log object.
        let first = again(|| async { file.iterator().await?.next().await }).await;
        match first {
            Ok(Some(_)) => return Ok(true),
            Ok(None) => file = file.next_file(),
            Err(error) if is_not_found(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_not_found(error: &slatedb::Error) -> bool {
    let Some(source) = std::error::Error::source(error) else { return false };
    let shared = source.downcast_ref::<Arc<object_store::Error>>().map(Arc::as_ref);
    let source = shared.or_else(|| source.downcast_ref::<object_store::Error>());
    matches!(source, Some(object_store::Error::NotFound { .. }))
}

/// Returns the newest manifest. A stale list lacks the newest ones, whose numbers are consecutive.
pub(crate) async fn newest_manifest(
    at: &Location,
) -> Result<Option<VersionedManifest>, VolumeError> {
    let admin = admin(at);
    let mut newest = admin.read_manifest(None).await?;
    loop {
        let next = newest.as_ref().map_or(1, |manifest| manifest.id() + 1);
        match admin.read_manifest(Some(next)).await? {
            Some(manifest) => newest = Some(manifest),
            None => return Ok(newest),
        }
    }
}

/// Returns the time of the last compaction in the database's list.
async fn last_compaction(at: &Location) -> Result<Option<u64>, VolumeError> {
    let compactions = admin(at).read_compactions(None).await?;
    let times = |it: &VersionedCompactions| {
        it.recent_compactions().map(|job| job.id().timestamp_ms()).max()
    };
    Ok(compactions.as_ref().and_then(times))
}

/// Options to close a database without changes.
pub(crate) fn unflushed() -> CloseOptions {
    CloseOptions::default().with_flush_type(None::<FlushType>)
}

/// Returns a seed for the database's random numbers.
fn seed() -> u64 {
    runtime::random_uuid().as_u64_pair().0
}

fn merging() -> CompactorOptions {
    let scheduling = SizeTieredCompactionSchedulerOptions {
        min_compaction_sources: MERGED_TABLES,
        max_compaction_sources: 2 * MERGED_TABLES,
        ..Default::default()
    };
    CompactorOptions { scheduler_options: scheduling.into(), ..CompactorOptions::default() }
}

/// Settings of the database's garbage collector. Views have no checkpoint, and read tables for a long time.
fn removing() -> GarbageCollectorOptions {
    let older = |min_age| Some(GarbageCollectorDirectoryOptions { min_age, ..Default::default() });
    GarbageCollectorOptions {
        manifest_options: older(NAMED_AGE),
        wal_options: older(NAMED_AGE),
        compacted_options: older(TABLE_AGE),
        ..GarbageCollectorOptions::default()
    }
}

/// Opens the current state or a checkpoint for reading.
pub(crate) async fn open_to_read(
    at: &Location,
    marker: &Marker,
    checkpoint: Option<uuid::Uuid>,
    options: &Options,
) -> Result<DbReader, VolumeError> {
    let mode = checkpoint.map_or(DbReaderMode::FollowLatest, DbReaderMode::Checkpoint);
    let reading = DbReaderOptions {
        manifest_poll_interval: NEVER,
        object_store_max_retries: Some(options.retries),
        object_store_cache_options: on_disk(marker, options),
        ..DbReaderOptions::default()
    };
    let builder = DbReader::builder(path(at), Arc::clone(&at.store))
        .with_reader_mode(mode)
        .with_options(reading)
        .with_db_cache(cache(options), 0)
        .with_system_clock(Arc::new(VolumeClock::new()))
        .with_seed(seed());
    Ok(builder.build().await?)
}

pub(crate) fn admin(at: &Location) -> Admin {
    Admin::builder(path(at), Arc::clone(&at.store))
        .with_system_clock(Arc::new(VolumeClock::new()))
        .with_seed(seed())
        .build()
}

fn cache(options: &Options) -> Arc<dyn DbCache> {
    let options =
        MokaCacheOptions { max_capacity: options.cache_bytes, ..MokaCacheOptions::default() };
    Arc::new(MokaCache::new_with_opts(options))
}

/// Settings of the disk cache. It holds tables, which are immutable and whose names are never reused.
fn on_disk(marker: &Marker, options: &Options) -> ObjectStoreCacheOptions {
    let directory = options.disk_cache.as_ref();
    ObjectStoreCacheOptions {
        root_folder: directory.map(|directory| directory.join(marker.uuid.to_string())),
        max_cache_size_bytes: Some(usize::try_from(options.disk_cache_bytes).unwrap_or(usize::MAX)),
        part_size_bytes: KEPT_BYTES,
        cache_on_flush: true,
        ..ObjectStoreCacheOptions::default()
    }
}
