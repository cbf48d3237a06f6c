//! Parts of bulk objects in a local directory, which is kept between openings.

use std::sync::Arc;

use bytes::Bytes;
use moka::future::Cache;

use crate::place::disk_cache::{Cached, DiskCache};
use crate::volume::Options;
use crate::volume::bulk::{OBJECT_BYTES_MAX, ObjectName};
use crate::volume::marker::Marker;

/// Maximum number of objects whose files are open. Each has two.
const OPEN_MAX: u64 = 64;

/// The cache on disk of a volume's bulk objects. Names of objects are unique, so the cache needs no versions.
#[derive(Clone)]
pub(super) struct KeptParts {
    cache: Arc<DiskCache>,
    part_bytes: u64,
    open: Cache<ObjectName, Option<Arc<Cached>>>,
}

impl KeptParts {
    /// Opens the cache of a volume; `None` if it is off or cannot be used.
    pub(super) fn open(marker: &Marker, options: &Options, part_bytes: u64) -> Option<Self> {
        let directory = options.disk_cache.as_ref()?.join(format!("{}-bulk", marker.uuid));
        let cache = DiskCache::open(&directory, options.disk_cache_bytes);
        let cache = cache.inspect_err(|error| {
            tracing::warn!("{}: caching is off: {error}", directory.display());
        });
        let open = Cache::new(OPEN_MAX);
        Some(Self { cache: cache.ok()?, part_bytes, open })
    }

    async fn object(&self, name: ObjectName) -> Option<Arc<Cached>> {
        let opened = async {
            let object = self.cache.of(&name.to_string(), OBJECT_BYTES_MAX, self.part_bytes);
            object.map(Arc::new)
        };
        self.open.get_with(name, opened).await
    }

    /// Returns a part if it is stored. The last part of an object is followed by zeros.
    pub(super) async fn get(&self, (name, part): (ObjectName, u64)) -> Option<Bytes> {
        self.object(name).await?.get(part)
    }

    /// Stores a part.
    pub(super) async fn put(&self, (name, part): (ObjectName, u64), bytes: &[u8]) {
        let Some(object) = self.object(name).await else { return };
        if bytes.len() as u64 == self.part_bytes {
            object.put(part, bytes);
        } else {
            let mut padded = bytes.to_vec();
            padded.resize(self.part_bytes as usize, 0);
            object.put(part, &padded);
        }
    }
}
