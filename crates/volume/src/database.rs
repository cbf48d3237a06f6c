//! The database of a volume: where it lies, and how it is set up.

use std::sync::Arc;
use std::time::Duration;

use object_store::path::Path;
use slatedb::admin::Admin;
use slatedb::config::{DbReaderOptions, Settings, SstBlockSize};
use slatedb::db_cache::DbCache;
use slatedb::db_cache::moka::{MokaCache, MokaCacheOptions};
use slatedb::{Db, DbReader, DbReaderMode};

use crate::{Location, Options, VolumeError};

/// How long writes wait for each other where nobody asks for a flush: what a crash may lose then.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// Written bytes that become a table.
const TABLE_BYTES: usize = 32 << 20;
/// Written bytes in memory at most; then writers wait.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// What one request reads of a table: requests are dear, bytes are cheap.
const READ_UNIT: SstBlockSize = SstBlockSize::Block64Kib;
/// A view is of one moment: it never looks for a later one, not even at once. That is what SlateDB's clock does if less
/// than this has passed since its first moment, 262,000 years ago.
const NEVER: Duration = Duration::from_secs(300_000 * 365 * 24 * 3600);

pub(crate) fn path(at: &Location) -> Path {
    at.path.clone().join("db")
}

/// Opens the database to be changed, and fences whoever had it.
pub(crate) async fn open(at: &Location, options: &Options) -> Result<Db, VolumeError> {
    let settings = Settings {
        flush_interval: Some(LOG_INTERVAL),
        l0_sst_size_bytes: TABLE_BYTES,
        max_unflushed_bytes: WAITING_BYTES_MAX,
        object_store_max_retries: Some(options.retries),
        ..Settings::default()
    };
    let builder = Db::builder(path(at), Arc::clone(&at.store))
        .with_settings(settings)
        .with_sst_block_size(READ_UNIT)
        .with_db_cache(cache(options), 0);
    Ok(builder.build().await?)
}

/// Opens the database for reading, as it is now, or at a checkpoint.
pub(crate) async fn open_to_read(
    at: &Location,
    checkpoint: Option<uuid::Uuid>,
    options: &Options,
) -> Result<DbReader, VolumeError> {
    // Objects that a writer replaces stay for a day.
    let mode = checkpoint.map_or(DbReaderMode::FollowLatest, DbReaderMode::Checkpoint);
    let reading = DbReaderOptions {
        manifest_poll_interval: NEVER,
        object_store_max_retries: Some(options.retries),
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
