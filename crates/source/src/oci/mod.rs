//! Container images as sources: layouts of the OCI image specification, archives of `docker save`, and with the
//! feature `pull` registries.
//!
//! [`Image::load`] reads each layer once, several at a time: it verifies the digests, decompresses, keeps what the
//! entries are in memory, and puts the contents of files into one file without a name (those of plain layers stay
//! where they are). Then the layers are applied to a tree in memory, from the lowest up, by the rules of the image
//! specification. [`Image::source`] gives that tree as a stream, as often as it is wanted.
//!
//! [`LayerFile`] is one layer alone, to be applied to something else than layers.
//!
//! Memory is taken for names, attributes and a few numbers of each entry, and is limited; contents take none.

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
pub use stream::ContainerSource;
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

/// Most layers that are read at the same time.
const THREADS_MAX: usize = 16;

/// What is accepted of an image that may be made to do harm.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes that a layer may have when it is decompressed; `None` is 1 GiB, and 1024 for each that is stored.
    pub layer_bytes: Option<u64>,
    /// Bytes of memory for the names and attributes of all layers.
    pub names_bytes: u64,
    /// Bytes of an archive that is copied, because it is compressed or comes from a pipe.
    pub archive_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { layer_bytes: None, names_bytes: 1 << 30, archive_bytes: 256 << 30 }
    }
}

impl Limits {
    /// Bytes that a layer of `stored` bytes may become.
    fn expanded(&self, stored: u64) -> u64 {
        self.layer_bytes.unwrap_or_else(|| expanded_max(stored))
    }
}

/// How to read an image.
#[derive(Clone, Debug)]
pub struct ImageOptions {
    /// Which of an image for several platforms; `None` is the only one, or Linux on this processor.
    pub platform: Option<Platform>,
    /// Keep the layers apart, as overlayfs has its lower directories, in directories named by their order.
    pub is_overlay: bool,
    /// Where temporary files without names go.
    pub beside: PathBuf,
    /// Layers read at the same time, at least 1.
    pub threads: usize,
    /// What is accepted.
    pub limits: Limits,
}

/// A container image that was read.
pub struct Image {
    flat: Arc<Flat>,
    config: Vec<u8>,
}

impl Image {
    /// Reads an image and flattens it.
    ///
    /// # Errors
    /// If it cannot be read, is not what its digests and sizes say, or asks for too much. Each error names the blob,
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

    /// The image's configuration: JSON, as it is stored.
    pub fn config(&self) -> &[u8] {
        &self.config
    }

    /// The flattened tree, from its start.
    pub fn source(&self) -> ContainerSource {
        ContainerSource::new(Arc::clone(&self.flat))
    }
}

/// Reads all layers, the largest first, and gives them in the order of the manifest.
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
            // A host that gives no further thread reads with fewer.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    // Of several layers that failed the lowest one is told.
    results.into_iter().map(|read| read.into_inner().unwrap_or_else(|| Ok(Vec::new()))).collect()
}
