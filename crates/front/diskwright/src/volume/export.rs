//! Export of a volume to an image file.

use std::io;
use std::path::Path;

use disk::{BlockDevice, FileDevice};
use remote::volume::View;

use super::{at, location, parts};
use crate::anywhere::of_volumes;
use crate::replace::{Replace, Replacement};
use crate::{Error, Result};

/// Copies the current state of a volume, or a snapshot, to a sparse file. `heard` receives the number of bytes
/// processed and the total, and may cancel with an error.
///
/// # Errors
/// If the volume does not exist or cannot be read, or the file cannot be created. Replacing an existing file requires
/// `force`.
pub fn export(
    address: &str,
    file: &Path,
    force: bool,
    heard: &mut dyn FnMut(u64, u64) -> io::Result<()>,
) -> Result<()> {
    let (volume, snapshot) = parts(address);
    let view = View::open(&location(volume)?, snapshot, of_volumes()).map_err(at(address))?;
    let replace = if force { Replace::Anything } else { Replace::Empty };
    let new = Replacement::create(file, replace).map_err(|refused| refused.at("make", file))?;
    let failed = |e: io::Error| Error::host("write", file, e);
    let handle = new.file().try_clone().map_err(failed)?;
    handle.set_len(view.len()).map_err(failed)?;
    let device = FileDevice::new(handle).map_err(failed)?;
    let len = view.len();
    view.copy_to(&device, &mut |done| heard(done, len)).map_err(at(address))?;
    new.keep().map_err(|refused| refused.at("make", file))
}
