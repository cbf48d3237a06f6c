//! The database of a volume: where it lies, and how it is set up.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use slatedb::admin::Admin;
use slatedb::config::{
    CompactorOptions, DbReaderOptions, ObjectStoreCacheOptions, Settings,
    SizeTieredCompactionSchedulerOptions, SstBlockSize,
};
use slatedb::db_cache::DbCache;
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use slatedb::{Db, DbReader, DbReaderMode};

use crate::marker::Marker;
use crate::{Location, Options, VolumeError};

/// How long writes wait for each other where nobody asks for a flush: what a crash may lose then.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// So many tables, or runs of tables of about one size, become one run: each further size costs to write everything again,
/// and a read looks into fewer than that of each size.
const MERGED_TABLES: usize = 8;
/// New tables that wait to be merged at most; then writers wait.
const TABLES_MAX: usize = 32;
/// Written bytes in memory at most; then writers wait.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// What one request reads of a table: requests are dear, bytes are cheap.
const READ_UNIT: SstBlockSize = SstBlockSize::Block64Kib;
/// What is kept on disk, and so fetched, at a time. Damage of it is found by the checksums of tables, and fetched again.
const KEPT_BYTES: usize = 256 << 10;
/// A view is of one moment: it never looks for a later one, not even at once. That is what SlateDB's clock does if less
/// than this has passed since its first moment, 262,000 years ago.
const NEVER: Duration = Duration::from_secs(300_000 * 365 * 24 * 3600);

pub(crate) fn path(at: &Location) -> Path {
    at.path.clone().join("db")
}

/// Opens the database to be changed, and fences whoever had it.
pub(crate) async fn open(
    at: &Location,
    marker: &Marker,
    options: &Options,
) -> Result<Db, VolumeError> {
    let settings = Settings {
        flush_interval: Some(LOG_INTERVAL),
        l0_sst_size_bytes: usize::try_from(options.table_bytes).unwrap_or(usize::MAX),
        l0_max_ssts: TABLES_MAX,
        l0_max_ssts_per_key: TABLES_MAX,
        max_unflushed_bytes: WAITING_BYTES_MAX,
        compactor_options: Some(merging()),
        object_store_max_retries: Some(options.retries),
        object_store_cache_options: on_disk(marker, options),
        ..Settings::default()
    };
    let builder = Db::builder(path(at), Arc::clone(&at.store))
        .with_settings(settings)
        .with_sst_block_size(READ_UNIT)
        .with_db_cache(cache(options), 0);
    Ok(builder.build().await?)
}

fn merging() -> CompactorOptions {
    let scheduling = SizeTieredCompactionSchedulerOptions {
        min_compaction_sources: MERGED_TABLES,
        max_compaction_sources: 2 * MERGED_TABLES,
        ..Default::default()
    };
    CompactorOptions { scheduler_options: scheduling.into(), ..CompactorOptions::default() }
}

/// Opens the database for reading, as it is now, or at a checkpoint.
pub(crate) async fn open_to_read(
    at: &Location,
    marker: &Marker,
    checkpoint: Option<uuid::Uuid>,
    options: &Options,
) -> Result<DbReader, VolumeError> {
    // Objects that a writer replaces stay for a day.
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
        .with_db_cache(cache(options), 0);
    Ok(builder.build().await?)
}

pub(crate) fn admin(at: &Location) -> Admin {
    Admin::builder(path(at), Arc::clone(&at.store)).build()
}

fn cache(options: &Options) -> Arc<dyn DbCache> {
    let options =
        MokaCacheOptions { max_capacity: options.cache_bytes, ..MokaCacheOptions::default() };
    Arc::new(MokaCache::new_with_opts(options))
}

/// What is kept on disk: tables, which never change and have names that are never used again.
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
