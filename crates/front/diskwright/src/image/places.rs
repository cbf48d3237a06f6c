//! Images that are not ordinary local files: disks of macOS and Windows, remote images, virtual disks, and overlays.

use std::path::Path;
use std::sync::Arc;

use crate::{Result, anywhere};
use disk::BlockDevice;

/// Opens a disk, a place or an overlay file for reading. Returns `None` for any other file.
pub(crate) fn open_place(path: &Path, unlocked: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    #[cfg(all(feature = "build", any(target_os = "macos", windows)))]
    if let Some(disk) = crate::disks::raw::open(path, false, unlocked)? {
        return Ok(Some(disk));
    }
    let place = anywhere::open(path, unlocked)?;
    #[cfg(feature = "build")]
    if place.is_none() {
        return crate::clones::open_image(path, unlocked);
    }
    Ok(place)
}

/// Opens a disk, a place or an overlay file for writing. Returns `None` for any other file.
pub(crate) fn open_place_to_write(path: &Path) -> Result<Option<Arc<dyn BlockDevice>>> {
    #[cfg(all(feature = "build", any(target_os = "macos", windows)))]
    if let Some(disk) = crate::disks::raw::open(path, true, false)? {
        return Ok(Some(disk));
    }
    let place = anywhere::open_to_write(path)?;
    #[cfg(feature = "build")]
    if place.is_none() {
        return crate::clones::open_image_to_write(path);
    }
    Ok(place)
}
