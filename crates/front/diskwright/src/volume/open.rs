//! Detecting and opening volumes.

use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use remote::place::ImageLocation;
use remote::volume::{View, Volume};

use super::{at, location, parts};
use crate::anywhere::of_volumes;
use crate::{Error, Result};

/// Opens the volume that an image name denotes, or returns `None`. Opening it for writing takes it over from any
/// current user.
///
/// # Errors
/// If the bucket is not accessible, or the volume cannot be opened in this mode.
pub(crate) fn device(image: &Path, read_only: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some(ImageLocation::Object(address)) = ImageLocation::parse(image.as_os_str()) else {
        return Ok(None);
    };
    let text = address.with_secrets();
    if text.starts_with("http") {
        // HTTP is read-only, so it has no volumes.
        return Ok(None);
    }
    let (volume, snapshot) = parts(text);
    let place = location(volume)?;
    if !remote::volume::is_volume(&place).map_err(at(text))? {
        return Ok(None);
    }
    let options = of_volumes();
    if read_only {
        let view = View::open(&place, snapshot, options).map_err(at(text))?;
        return Ok(Some(Arc::new(view)));
    }
    if snapshot.is_some() {
        let problem = format!(
            "{address} is a snapshot, which is read-only; open it read-only, or create a volume \
             from it with diskwright volume clone"
        );
        return Err(Error::Usage(problem));
    }
    let volume = Volume::open(&place, options).map_err(at(text))?;
    Ok(Some(Arc::new(volume)))
}
