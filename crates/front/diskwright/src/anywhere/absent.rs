//! Without the feature `anywhere`, all images are local files.

use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;

use crate::Result;

pub(crate) fn open(_: &Path, _: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    Ok(None)
}

pub(crate) fn open_to_write(_: &Path) -> Result<Option<Arc<dyn BlockDevice>>> {
    Ok(None)
}

#[cfg(feature = "build")]
pub(crate) fn open_base(_: &Path, _: bool) -> Result<Option<super::Base>> {
    Ok(None)
}

#[cfg(feature = "build")]
pub(crate) fn lasting_name(_: &Path) -> Result<Option<String>> {
    Ok(None)
}
