//! Layers between an image file and its file system: volume groups, arrays, encrypted volumes and disk containers.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::layers::{Access, Layer, LayerError, LayerOptions, Member, Stack};
use disk::{BlockDevice, WindowDevice};
use parking_lot::Mutex;
use vfs::hint::Hint;

use super::devices::{self, DevicePurpose};
use super::{ImageOptions, opening};
use crate::partition::{self, PartitionError, Signature};
use crate::text::shown;
use crate::{Error, Result};

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

/// Returns the device behind the container, the partition and the layers of an image.
pub(super) fn part(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &ImageOptions,
    layers: &ImageLayers,
    purpose: DevicePurpose,
) -> Result<Arc<dyn BlockDevice>> {
    let access = match purpose {
        DevicePurpose::Read => Access::Read,
        DevicePurpose::Write => Access::Write,
    };
    let failed = |source| Error::Layer { image: path.to_owned(), source, hint: None };
    let Stack { device, layers: mut found } = ::layers::unpack(device, access).map_err(failed)?;
    let (part, inner) = selected(path, &device, options)?;
    let members = layers.0.members.iter().map(|member| {
        let opened = devices::open(member, options.norecovery, purpose)?;
        Ok(Member::new(shown(member).to_string(), opened))
    });
    let members = members.collect::<Result<Vec<_>>>()?;
    let image = Member::new(shown(path).to_string(), Arc::clone(&part));
    let resolved = ::layers::resolve(image, members, &layers.0.options, inner, access);
    let Stack { device, layers: behind } =
        resolved.map_err(|source| with_hint(path, &*part, source))?;
    if let Some(number) = inner.filter(|_| behind.is_empty()) {
        let _ = number;
        return Err(opening::no_partition(path, &*part, PartitionError::NoTable));
    }
    found.extend(behind);
    *layers.0.found.lock() = found;
    Ok(device)
}

/// Returns the part of a device selected by the options. If a layer may contain the partition table, returns the whole
/// device and the number.
fn selected(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    options: &ImageOptions,
) -> Result<(Arc<dyn BlockDevice>, Option<u32>)> {
    if options.partition.is_none() && options.offset == 0 {
        return Ok((Arc::clone(device), None));
    }
    if let Some(number) = options.partition
        && matches!(partition::find(&**device, number), Err(PartitionError::NoTable))
        && ::layers::has_layer(&**device).is_ok_and(|has| has)
    {
        return Ok((Arc::clone(device), Some(number)));
    }
    let (start, len) = opening::range(path, &**device, options)?;
    let window = WindowDevice::new(Arc::clone(device), start, len);
    Ok((Arc::new(window.map_err(|e| Error::host("read", path, e))?), None))
}

/// Adds the place of a file system in a volume with contiguous data, which is readable without its damaged layer.
fn with_hint(path: &Path, device: &dyn BlockDevice, source: LayerError) -> Error {
    let is_broken = matches!(source, LayerError::Damaged { .. } | LayerError::Missing { .. });
    let hint = match Signature::of(device) {
        Ok(Signature::Other(found)) if is_broken => found.inner.map(Hint::Offset),
        _ => None,
    };
    Error::Layer { image: path.to_owned(), source, hint }
}
