//! Settings for reading remote images.

use std::path::PathBuf;
use std::sync::OnceLock;

use remote::place::disk_cache::DiskCache;
use remote::place::lazy::LazyOptions;

use crate::{Error, Result};

/// Default size of the disk cache in bytes.
const CACHE_BYTES: u64 = 10 << 30;

/// Settings for reading remote images. They apply to the whole process, because it shares one memory and cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reading {
    /// Directory of the disk cache, which other processes may share.
    pub cache: Option<PathBuf>,
    /// Approximate maximum size of the disk cache in bytes.
    pub cache_bytes: u64,
    /// True to prefetch data.
    pub read_ahead: bool,
    /// True to read metadata from the bundles of images.
    pub bundles: bool,
    /// True if a qcow2 image may have an external data file, and a VMDK image extents in other directories. Such an
    /// image may refer to any host file.
    pub allow_data_files: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            cache: None,
            cache_bytes: CACHE_BYTES,
            read_ahead: true,
            bundles: true,
            allow_data_files: false,
        }
    }
}

setters!(Reading {
    cache: Option<PathBuf>,
    cache_bytes: u64,
    read_ahead: bool,
    bundles: bool,
    allow_data_files: bool,
});

static OPTIONS: OnceLock<LazyOptions> = OnceLock::new();
static DATA_FILES: OnceLock<bool> = OnceLock::new();
static OF_VOLUMES: OnceLock<remote::volume::Options> = OnceLock::new();

/// Subdirectory of the cache for volumes.
const VOLUMES: &str = "volumes";

/// Sets the settings of the process. Only the first call has an effect, and it must precede opening any location.
///
/// # Errors
/// If the cache directory cannot be created, or locations have been opened.
pub fn set_reading(reading: &Reading) -> Result<()> {
    let mut options = LazyOptions { bundles: reading.bundles, ..LazyOptions::default() };
    if !reading.read_ahead {
        options.read_ahead_bytes = 0;
    }
    if let Some(directory) = &reading.cache {
        let cache = DiskCache::open(directory, reading.cache_bytes);
        let failed = |error| Error::host("make the cache", directory, error);
        options.disk = Some(cache.map_err(failed)?);
        let of_volumes = remote::volume::Options::default()
            .disk_cache(Some(directory.join(VOLUMES)))
            .disk_cache_bytes(reading.cache_bytes);
        let _ = OF_VOLUMES.set(of_volumes);
    }
    let _ = DATA_FILES.set(reading.allow_data_files);
    let late =
        |_| Error::Usage("the options for remote images are already set, or one is open".into());
    OPTIONS.set(options).map_err(late)
}

/// Returns the settings of lazy reading.
pub(crate) fn options() -> &'static LazyOptions {
    OPTIONS.get_or_init(LazyOptions::default)
}

/// Returns whether virtual disks may refer to any data file.
pub(super) fn allows_data_files() -> bool {
    DATA_FILES.get().copied().unwrap_or(false)
}

/// Returns the settings of volumes.
pub(crate) fn of_volumes() -> &'static remote::volume::Options {
    OF_VOLUMES.get_or_init(remote::volume::Options::default)
}
