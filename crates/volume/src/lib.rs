//! Volumes: block devices that live in object storage.
//!
//! A volume is a prefix of a bucket. Its blocks are the values of a database ([SlateDB](slatedb)) below it, which keeps a
//! log of writes and sorted tables as objects; a marker beside the database says that it is a volume, and of which size.
//! What is written waits in memory; [`flush`](blockdev::BlockDevice::flush) puts it into the bucket as one object of the
//! log. A block of zeros is no value at all.
//!
//! - [`NewVolume`] makes one, [`Volume`] opens it to be changed, and [`View`] to be read as it is at one moment.
//! - Whoever opens a volume as [`Volume`] fences who had it before: *their* writes and flushes fail from then on.
//! - [`snapshot`], [`clone`] and [`delete`] work on volumes that nobody has open; [`Volume::snapshot`] on one's own.
#![forbid(unsafe_code)]

use std::path::PathBuf;

mod blocks;
mod database;
mod error;
mod manage;
mod marker;
mod names;
mod new;
mod view;
mod volume;

pub use error::VolumeError;
pub use manage::{Snapshot, clone, delete, list, snapshot, snapshots};
pub use marker::is_volume;
pub use new::NewVolume;
pub use place::store::Location;
pub use view::View;
pub use volume::Volume;

/// How a volume is used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Memory for blocks that were read, in bytes.
    pub cache_bytes: u64,
    /// Written bytes that become a table.
    pub table_bytes: u64,
    /// How often a request that fails is made again, about a second apart, before what needs it fails.
    pub retries: u32,
    /// A directory of the host to keep tables in, for who opens the volume next; below it, each volume has its own.
    pub disk_cache: Option<PathBuf>,
    /// Most bytes of that for a volume.
    pub disk_cache_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cache_bytes: 128 << 20,
            table_bytes: 32 << 20,
            retries: 30,
            disk_cache: None,
            disk_cache_bytes: 10 << 30,
        }
    }
}

impl Options {
    /// The same with another [`Self::retries`].
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        Self { retries, ..self }
    }

    /// The same with another [`Self::cache_bytes`].
    #[must_use]
    pub fn cache_bytes(self, cache_bytes: u64) -> Self {
        Self { cache_bytes, ..self }
    }

    /// The same with another [`Self::table_bytes`].
    #[must_use]
    pub fn table_bytes(self, table_bytes: u64) -> Self {
        Self { table_bytes, ..self }
    }

    /// The same with another [`Self::disk_cache`].
    #[must_use]
    pub fn disk_cache(self, disk_cache: Option<PathBuf>) -> Self {
        Self { disk_cache, ..self }
    }

    /// The same with another [`Self::disk_cache_bytes`].
    #[must_use]
    pub fn disk_cache_bytes(self, disk_cache_bytes: u64) -> Self {
        Self { disk_cache_bytes, ..self }
    }
}
