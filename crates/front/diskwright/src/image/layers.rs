//! Layers between an image file and its file system: volume groups, arrays, encrypted volumes and disk containers.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ::layers::{Layer, LayerOptions};
use parking_lot::Mutex;

/// Permission to look for a file system behind layers, with the keys and further members that it needs. Clones share
/// their keys, which stay in memory.
///
/// ```no_run
/// use diskwright::{ImageLayers, ImageOptions, LayerOptions};
///
/// # fn main() -> diskwright::Result<()> {
/// let mut options = ImageOptions::new();
/// options.devices.layers = Some(ImageLayers::new(LayerOptions::new().volume("vg/root"), Vec::new()));
/// let image = options.open("disk.img")?;
/// # image.close() }
/// ```
#[derive(Clone, Default)]
pub struct ImageLayers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    options: LayerOptions,
    members: Vec<PathBuf>,
    found: Mutex<Vec<Layer>>,
}

impl ImageLayers {
    /// Creates layers with the options, and with other images that are members of arrays or volume groups.
    #[must_use]
    pub fn new(options: LayerOptions, members: Vec<PathBuf>) -> Self {
        Self(Arc::new(Shared { options, members, found: Mutex::default() }))
    }

    /// Returns the same layers without members, for another image.
    #[must_use]
    pub fn without_members(&self) -> Self {
        Self::new(self.0.options.clone(), Vec::new())
    }

    /// Returns the layers of the image that was opened last, from the outermost one on.
    #[must_use]
    pub fn found(&self) -> Vec<Layer> {
        self.0.found.lock().clone()
    }

    pub(super) fn options(&self) -> &LayerOptions {
        &self.0.options
    }

    pub(super) fn members(&self) -> &[PathBuf] {
        &self.0.members
    }

    pub(super) fn set_found(&self, found: Vec<Layer>) {
        *self.0.found.lock() = found;
    }

    /// Returns whether the image that was opened last is in a layer.
    pub(super) fn has_found(&self) -> bool {
        !self.0.found.lock().is_empty()
    }
}

/// Values are equal if they share their keys.
impl PartialEq for ImageLayers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ImageLayers {}

impl fmt::Debug for ImageLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageLayers").field("options", &self.0.options).finish_non_exhaustive()
    }
}
