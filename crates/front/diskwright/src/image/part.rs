//! The part of an image file that contains a file system: a partition, or what a volume, an array or an encrypted disk
//! contains.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "layers")]
use ::layers::{Access, LayerError, Member, Stack};
use disk::{BlockDevice, WindowDevice};
use vfs::Error as FsError;
#[cfg(feature = "layers")]
use vfs::hint::Hint;

use super::ImageOptions;
#[cfg(feature = "layers")]
use super::devices;
use super::devices::DevicePurpose;
#[cfg(feature = "layers")]
use super::layers::ImageLayers;
use crate::partition::{self, PartitionError, Signature};
#[cfg(feature = "layers")]
use crate::text::shown;
use crate::{Error, Result};

/// Returns offset and length in bytes of the part of a device selected by the options.
pub(crate) fn range(
    path: &Path,
    device: &dyn BlockDevice,
    options: &ImageOptions,
) -> Result<(u64, u64)> {
    if let Some(number) = options.partition {
        let found =
            partition::find(device, number).map_err(|error| no_partition(path, device, error))?;
        return Ok((found.offset, found.len));
    }
    match device.len().checked_sub(options.offset) {
        Some(len) if len > 0 || options.offset == 0 => Ok((options.offset, len)),
        _ => {
            let len = device.len();
            let past = format!("offset is past the end of the image ({len} bytes)");
            Err(Error::Usage(past))
        }
    }
}

/// Returns the part of a device selected by the options, behind its layers.
pub(super) fn part(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &ImageOptions,
    access: DevicePurpose,
) -> Result<Arc<dyn BlockDevice>> {
    #[cfg(feature = "layers")]
    if let Some(layers) = &options.devices.layers {
        return behind_layers(path, device, options, layers, access);
    }
    let _ = access;
    if options.partition.is_none() && options.offset == 0 {
        return Ok(device);
    }
    let (start, len) = range(path, &*device, options)?;
    let window = WindowDevice::new(device, start, len).map_err(|e| Error::host("read", path, e))?;
    Ok(Arc::new(window))
}

/// Creates the error for a missing partition. If the file has another format, the error says so.
fn no_partition(path: &Path, device: &dyn BlockDevice, error: PartitionError) -> Error {
    if let (PartitionError::NoTable, Ok(Signature::Other(found))) = (&error, Signature::of(device))
    {
        let source = FsError::unsupported(found.description(), found.advice);
        return Error::image(path, source);
    }
    Error::Partition { image: path.to_owned(), source: error }
}

/// Returns the device behind the container, the partition and the layers of an image.
#[cfg(feature = "layers")]
fn behind_layers(
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
    let members = layers.members().iter().map(|member| {
        let opened = devices::open(member, options.norecovery, purpose)?;
        Ok(Member::new(shown(member).to_string(), opened))
    });
    let members = members.collect::<Result<Vec<_>>>()?;
    let image = Member::new(shown(path).to_string(), Arc::clone(&part));
    let resolved = ::layers::resolve(image, members, layers.options(), inner, access);
    let Stack { device, layers: behind } =
        resolved.map_err(|source| with_hint(path, &*part, source))?;
    if inner.is_some() && behind.is_empty() {
        return Err(no_partition(path, &*part, PartitionError::NoTable));
    }
    found.extend(behind);
    layers.set_found(found);
    Ok(device)
}

/// Returns the part of a device selected by the options. If a layer may contain the partition table, returns the whole
/// device and the number.
#[cfg(feature = "layers")]
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
    let (start, len) = range(path, &**device, options)?;
    let window = WindowDevice::new(Arc::clone(device), start, len);
    Ok((Arc::new(window.map_err(|e| Error::host("read", path, e))?), None))
}

/// Adds the place of a file system in a volume with contiguous data, which is readable without its damaged layer.
#[cfg(feature = "layers")]
fn with_hint(path: &Path, device: &dyn BlockDevice, source: LayerError) -> Error {
    let is_broken = matches!(source, LayerError::Damaged { .. } | LayerError::Missing { .. });
    let hint = match Signature::of(device) {
        Ok(Signature::Other(found)) if is_broken => found.inner.map(Hint::Offset),
        _ => None,
    };
    Error::Layer { image: path.to_owned(), source, hint }
}
