//! A volume as an image in a file.

use std::io;
use std::path::Path;

use ::volume::View;
use blockdev::{BlockDevice, FileDevice};

use super::{at, location, parts};
use crate::anywhere::of_volumes;
use crate::replace::{Replace, Replacement};
use crate::{Error, Result};

/// Copies a volume as it is now, or a snapshot of one, into a sparse file. `heard` is told of the bytes up to which that
/// is done, of how many, and may end it with an error.
///
/// # Errors
/// If there is none, it cannot be read, or the file cannot be made; one that is there already needs `force`.
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
