//! Volumes: block devices in object storage.
//!
//! A volume is a prefix of a bucket. Its blocks are the values of a database ([SlateDB](slatedb)) below the prefix. The
//! database stores a log of writes and sorted tables as objects. A marker object identifies the volume and states its
//! size. Writes are buffered in memory; [`flush`](disk::BlockDevice::flush) puts them into the bucket as one object
//! of the log. A block of zeros has no value. Large writes become separate objects, and the database refers to
//! their blocks.
//!
//! - [`NewVolume`] creates a volume, [`Volume`] opens it for writing, and [`View`] reads it as of one moment.
//! - Opening a [`Volume`] fences its previous writer, whose writes and flushes fail from then on.
//! - [`snapshot`], [`clone`] and [`delete`] require that the volume is not open; [`Volume::snapshot`] works on an
//!   open one.
//! - [`collect`] removes unneeded bulk objects, and [`survey`] counts and checks them.

use std::path::PathBuf;
use std::time::Duration;

mod blocks;
mod bulk;
mod clock;
mod database;
mod device;
mod error;
mod garbage;
mod manage;
mod marker;
mod names;
mod new;
mod pins;
mod reader;
mod references;
mod survey;
mod view;

pub use crate::place::store::Location;
pub use device::Volume;
pub use error::VolumeError;
pub use garbage::{GARBAGE_AGE, GarbageCount};
pub use manage::{Snapshot, clone, collect, delete, list, snapshot, snapshots};
pub use marker::is_volume;
pub use new::NewVolume;
pub use survey::{VolumeSurvey, survey};
pub use view::View;

/// Options for using a volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Size of the memory cache of tables, in bytes, and of another one for bulk objects.
    pub cache_bytes: u64,
    /// Size at which buffered writes become a table, in bytes.
    pub table_bytes: u64,
    /// Number of retries of a failing request, about one second apart, before the operation fails.
    pub retries: u32,
    /// Minimum size of unflushed data in a region of 4 MiB that is stored as a separate object, in bytes. Smaller
    /// data goes through the database's log.
    pub bulk_bytes: u64,
    /// Time without writes after which a region of 4 MiB with data in several objects is stored as one object.
    pub compact_after: Duration,
    /// Local directory that caches tables across openings. Each volume has its own subdirectory.
    pub disk_cache: Option<PathBuf>,
    /// Maximum size of a volume's disk cache in bytes.
    pub disk_cache_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 128 << 20,
            table_bytes: 32 << 20,
            retries: 30,
            bulk_bytes: 1 << 20,
            compact_after: Duration::from_secs(60),
            disk_cache: None,
            disk_cache_bytes: 10 << 30,
        }
    }
}

impl Options {
    /// Sets [`Self::retries`].
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// Sets [`Self::bulk_bytes`].
    #[must_use]
    pub fn bulk_bytes(self, bulk_bytes: u64) -> Self {
        Self { bulk_bytes, ..self }
    }

    /// Sets [`Self::compact_after`].
    #[must_use]
    pub fn compact_after(self, compact_after: Duration) -> Self {
        Self { compact_after, ..self }
    }

    /// Sets [`Self::cache_bytes`].
    #[must_use]
    pub fn cache_bytes(self, cache_bytes: u64) -> Self {
        Self { cache_bytes, ..self }
    }

    /// Sets [`Self::table_bytes`].
    #[must_use]
    pub fn table_bytes(self, table_bytes: u64) -> Self {
        Self { table_bytes, ..self }
    }

    /// Sets [`Self::disk_cache`].
    #[must_use]
    pub fn disk_cache(self, disk_cache: Option<PathBuf>) -> Self {
        Self { disk_cache, ..self }
    }

    /// Sets [`Self::disk_cache_bytes`].
    #[must_use]
    pub fn disk_cache_bytes(self, disk_cache_bytes: u64) -> Self {
        Self { disk_cache_bytes, ..self }
    }
}
