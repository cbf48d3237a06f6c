//! Images that are not ordinary local files: remote images, virtual disks, and overlays.

use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;

use crate::{Result, anywhere};

/// Opens a place or an overlay file for reading. Returns `None` for any other file.
pub(crate) fn open_place(path: &Path, unlocked: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    let place = anywhere::open(path, unlocked)?;
    #[cfg(feature = "build")]
    if place.is_none() {
        return crate::clones::open_image(path, unlocked);
    }
    Ok(place)
}

/// Opens a place or an overlay file for writing. Returns `None` for any other file.
pub(crate) fn open_place_to_write(path: &Path) -> Result<Option<Arc<dyn BlockDevice>>> {
    let place = anywhere::open_to_write(path)?;
    #[cfg(feature = "build")]
    if place.is_none() {
        return crate::clones::open_image_to_write(path);
    }
    Ok(place)
}
