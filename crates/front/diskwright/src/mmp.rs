//! Multiple mount protection of ext4: claims of images that are changed.

use std::path::Path;
#[cfg(feature = "build")]
use std::sync::Arc;

#[cfg(feature = "build")]
use disk::BlockDevice;
#[cfg(feature = "build")]
use ext4::mmp::MmpDevice;
use ext4::mmp::{MmpOptions, OnWait};

#[cfg(feature = "build")]
use crate::Format;
use crate::host;

/// Returns how this host claims the image at a path. A wait is a message of this library (`tracing`).
pub(crate) fn options(path: &Path) -> MmpOptions {
    let node = host::node_name().unwrap_or_else(|| "diskwright".into());
    let device = path.file_name().unwrap_or_default();
    let on_wait: Option<OnWait> = Some(|what| tracing::warn!("{what}"));
    MmpOptions { on_wait, ..MmpOptions::named(node.as_bytes(), device.as_encoded_bytes()) }
}

/// Claims an image that is changed on its device. The claim ends when the device is dropped. Returns `None` for images
/// without multiple mount protection, and for damaged ones.
///
/// # Errors
/// If another host uses or checks the image; if the device fails.
#[cfg(feature = "build")]
pub(crate) fn claim(
    path: &Path,
    format: Format,
    device: &Arc<dyn BlockDevice>,
) -> vfs::Result<Option<Arc<MmpDevice>>> {
    match format {
        Format::Ext4 => ext4::mmp::claim_for_repair(device, &options(path)),
        Format::Xfs => Ok(None),
    }
}

/// Claims an image, changes it on its device, and releases it.
///
/// # Errors
/// Those of `change` and [`claim`]; if the image cannot be released.
#[cfg(feature = "build")]
pub(crate) fn during<T>(
    path: &Path,
    format: Format,
    device: Arc<dyn BlockDevice>,
    change: impl FnOnce(Arc<dyn BlockDevice>) -> vfs::Result<T>,
) -> vfs::Result<T> {
    let Some(claim) = claim(path, format, &device)? else { return change(device) };
    let changed = change(Arc::clone(&claim) as _)?;
    claim.release().map_err(vfs::Error::Device)?;
    Ok(changed)
}
