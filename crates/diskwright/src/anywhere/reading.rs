//! How places are read.

use std::path::PathBuf;
use std::sync::OnceLock;

use place::disk_cache::DiskCache;
use place::lazy::LazyOptions;

use crate::{Error, Result};

/// Bytes of a cache on disk unless told otherwise.
const CACHE_BYTES: u64 = 10 << 30;

/// How places are read: by all of a process, because all of it shares their memory and their cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reading {
    /// A directory to keep what was fetched in, for other processes too.
    pub cache: Option<PathBuf>,
    /// About how many bytes it may take.
    pub cache_bytes: u64,
    /// Whether what will be wanted is fetched before it is asked for.
    pub read_ahead: bool,
    /// A qcow2 may have its data in another file, and a VMDK in files of other directories. Such an image may name any file
    /// of the host.
    pub allow_data_files: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self { cache: None, cache_bytes: CACHE_BYTES, read_ahead: true, allow_data_files: false }
    }
}

setters!(Reading {
    cache: Option<PathBuf>,
    cache_bytes: u64,
    read_ahead: bool,
    allow_data_files: bool,
});

static OPTIONS: OnceLock<LazyOptions> = OnceLock::new();
static DATA_FILES: OnceLock<bool> = OnceLock::new();
static OF_VOLUMES: OnceLock<volume::Options> = OnceLock::new();

/// Volumes, in the cache's directory, where nothing else has such a name.
const VOLUMES: &str = "volumes";

/// Says how places are read from now on. The first to say it is heard; it comes before any place is opened.
///
/// # Errors
/// If the cache's directory cannot be made, or places have been opened.
pub fn set_reading(reading: &Reading) -> Result<()> {
    let mut options = LazyOptions::default();
    if !reading.read_ahead {
        options.read_ahead_bytes = 0;
    }
    if let Some(directory) = &reading.cache {
        let cache = DiskCache::open(directory, reading.cache_bytes);
        let failed = |error| Error::host("make the cache", directory, error);
        options.disk = Some(cache.map_err(failed)?);
        let of_volumes = volume::Options::default()
            .disk_cache(Some(directory.join(VOLUMES)))
            .disk_cache_bytes(reading.cache_bytes);
        let _ = OF_VOLUMES.set(of_volumes);
    }
    let _ = DATA_FILES.set(reading.allow_data_files);
    let late = |_| Error::Usage("how places are read was said before, or one is open".into());
    OPTIONS.set(options).map_err(late)
}

pub(super) fn options() -> &'static LazyOptions {
    OPTIONS.get_or_init(LazyOptions::default)
}

/// Returns true if virtual disks may have their data in any file.
pub(super) fn allows_data_files() -> bool {
    DATA_FILES.get().copied().unwrap_or(false)
}

/// How volumes are used.
pub(crate) fn of_volumes() -> &'static volume::Options {
    OF_VOLUMES.get_or_init(volume::Options::default)
}
