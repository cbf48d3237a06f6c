//! Opening images without the feature `anywhere`.

use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;

use crate::Result;

/// Opens an overlay file for reading. Returns `None` for any other file.
pub(crate) fn open(word: &Path, unlocked: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    #[cfg(feature = "build")]
    return crate::clones::open_image(word, unlocked);
    #[cfg(not(feature = "build"))]
    {
        let _ = (word, unlocked);
        Ok(None)
    }
}

/// Opens an overlay file for writing. Returns `None` for any other file.
pub(crate) fn open_to_write(word: &Path) -> Result<Option<Arc<dyn BlockDevice>>> {
    #[cfg(feature = "build")]
    return crate::clones::open_image_to_write(word);
    #[cfg(not(feature = "build"))]
    {
        let _ = word;
        Ok(None)
    }
}

/// Returns `None`: all bases are local files.
#[cfg(feature = "build")]
pub(crate) fn open_base(_: &Path, _: bool) -> Result<Option<crate::clones::Base>> {
    Ok(None)
}

/// Returns `None`: all bases are local files.
#[cfg(feature = "build")]
pub(crate) fn lasting_name(_: &Path) -> Result<Option<String>> {
    Ok(None)
}
