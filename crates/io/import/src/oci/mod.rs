//! Container images as sources: OCI image layouts, archives of `docker save`, and registries with the feature `pull`.
//!
//! [`ContainerImage::load`] reads each layer once, several at a time: it verifies the digests, decompresses, keeps the entries
//! in memory, and writes file contents to one unnamed file (those of uncompressed layers stay in place). Then it
//! applies the layers to a tree in memory, from the lowest to the highest, by the rules of the image specification.
//! [`ContainerImage::source`] returns that tree as a stream, any number of times.
//!
//! [`LayerFile`] is a single layer, to be applied to something other than layers.
//!
//! Memory is used for names, attributes and a few numbers of each entry, and is limited; contents use none.

mod docker;
mod error;
mod flatten;
mod layer;
mod layer_file;
mod manifest;
mod overlay;
mod pool;
#[cfg(feature = "pull")]
mod pull;
mod reference;
mod store;
mod stream;
mod tree;
mod verify;
mod whiteout;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

pub use error::ContainerFault;
pub use layer_file::{LayerEntry, LayerFile, read_archive};
pub use reference::{Platform, Reference};
pub(crate) use stream::ContainerSource;
pub use whiteout::Meaning;

use crate::tar::compress::expanded_max;
use crate::{Entry, SourceError};
use flatten::Flattener;
use layer::LayerReader;
use manifest::Manifest;
use pool::Pool;
use reference::Transport;
use store::Store;
use stream::Flat;

/// Maximum number of layers that are read at the same time.
const THREADS_MAX: usize = 16;

/// Limits for images that may be malicious.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum size of a decompressed layer in bytes; `None` means 1 GiB plus 1024 times the stored size.
    pub layer_bytes: Option<u64>,
    /// Maximum memory for the names and attributes of all layers in bytes.
    pub names_bytes: u64,
    /// Maximum size in bytes of an archive that is copied, because it is compressed or comes from a pipe.
    pub archive_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { layer_bytes: None, names_bytes: 1 << 30, archive_bytes: 256 << 30 }
    }
}

impl Limits {
    /// Returns the maximum decompressed size of a layer of `stored` bytes.
    fn expanded(&self, stored: u64) -> u64 {
        self.layer_bytes.unwrap_or_else(|| expanded_max(stored))
    }
}

/// Options for reading an image.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    /// Platform of an image for several platforms; `None` means the only one, or Linux on this processor.
    pub platform: Option<Platform>,
    /// Keeps the layers separate, as lower directories of overlayfs, in directories named by their order.
    pub is_overlay: bool,
    /// Directory for unnamed temporary files.
    pub beside: PathBuf,
    /// Number of layers read at the same time, at least 1.
    pub threads: usize,
    /// Limits.
    pub limits: Limits,
}

/// A container image in memory.
pub struct ContainerImage {
    flat: Arc<Flat>,
    config: Vec<u8>,
}

impl ContainerImage {
    /// Reads an image and flattens it.
    ///
    /// # Errors
    /// If it cannot be read, does not match its digests and sizes, or exceeds the limits. Each error contains the blob,
    /// and the entry of a layer.
    pub fn load(reference: &Reference, options: &ImageOptions) -> Result<Self, SourceError> {
        #[cfg(feature = "pull")]
        let store = match reference.transport {
            Transport::Registry => pull::fetch(reference, options)?,
            _ => Store::open(reference, &options.beside, &options.limits)?,
        };
        #[cfg(not(feature = "pull"))]
        let store = Store::open(reference, &options.beside, &options.limits)?;
        let platform = options.platform.as_ref();
        let manifest = match reference.transport {
            Transport::Oci | Transport::OciArchive => {
                manifest::of_layout(&store, &reference.selector, platform)?
            }
            #[cfg(feature = "pull")]
            Transport::Registry => manifest::of_layout(&store, &reference.selector, platform)?,
            Transport::DockerArchive => docker::of_archive(&store, &reference.selector, platform)?,
        };
        let layers = read_layers(&store, &manifest, options)?;
        let mut flat =
            Flattener::new(&store.image, &options.limits, layers.len(), options.is_overlay);
        for (layer, entries) in manifest.layers.iter().zip(layers) {
            flat.apply(&layer.name, entries)?;
        }
        Ok(Self { flat: Arc::new(Flat::new(flat.finish())), config: manifest.config })
    }

    /// Returns the image's configuration: JSON, as stored.
    pub fn config(&self) -> &[u8] {
        &self.config
    }

    /// Returns a stream of the flattened tree.
    pub fn source(&self) -> ContainerSource {
        ContainerSource::new(Arc::clone(&self.flat))
    }
}

/// Reads all layers, the largest first, and returns them in the order of the manifest.
fn read_layers(
    store: &Store,
    manifest: &Manifest,
    options: &ImageOptions,
) -> Result<Vec<Vec<Entry>>, SourceError> {
    let pool = Pool::new(&options.beside)?;
    let layers = &manifest.layers;
    let mut order: Vec<usize> = (0..layers.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(layers[i].size));
    let results: Vec<_> = layers.iter().map(|_| Mutex::new(None)).collect();
    let (next, is_cancelled) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (layer, limits) = (&layers[i], &options.limits);
            let reader =
                LayerReader { store, layer, pool: &pool, limits, is_cancelled: &is_cancelled };
            let read = reader.read();
            if read.is_err() {
                is_cancelled.store(true, Ordering::Relaxed);
            }
            *results[i].lock() = Some(read);
        }
    };
    thread::scope(|scope| {
        let threads = options.threads.clamp(1, THREADS_MAX).min(layers.len());
        for _ in 1..threads {
            // If a thread cannot be started, fewer threads do the work.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    // The error is that of the lowest failed layer.
    results.into_iter().map(|read| read.into_inner().unwrap_or_else(|| Ok(Vec::new()))).collect()
}
