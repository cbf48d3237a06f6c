//! Metadata with random names, for reports of errors (`bundle --obfuscate`).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::path::Path;

use disk::{BlockDevice, FileDevice};
use serde::Serialize;

use crate::replace::{Replace, Replacement};
use crate::{Error, ImageOptions, Result, text};

/// A copy of metadata that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObfuscateReport {
    /// File of the copy.
    pub place: String,
    /// Length of the copy in bytes: that of the file system. It is sparse.
    pub image_bytes: u64,
    /// Parts of the image that could not be read. They are missing in the copy.
    pub remarks: Vec<String>,
}

/// Writes the metadata of an image to the new file `out`, with random names and without contents, targets of links, and
/// values of attributes. A journal or log is replayed before, and is empty in the copy.
///
/// # Errors
/// If the image cannot be opened, or the file exists or cannot be written.
pub fn obfuscate(image: &Path, open: &ImageOptions, out: &Path) -> Result<ObfuscateReport> {
    let opened = open.clone().write(false).open(image)?;
    let fs = opened.file_system()?;
    let of_image = |source| Error::image(image, source);
    let shape = fs.layout().shape().map_err(of_image)?;
    let image_bytes = shape.blocks.saturating_mul(shape.block_size.into());
    let new = Replacement::create(out, Replace::Nothing);
    let new = new.map_err(|refused| refused.at("make", out))?;
    let failed = |e| Error::host("write", out, e);
    new.file().set_len(image_bytes).map_err(failed)?;
    let device = FileDevice::new(new.file().try_clone().map_err(failed)?).map_err(failed)?;
    // The key must not be known to readers of the copy.
    let key = RandomState::new().hash_one(0);
    let remarks = fs.obfuscate(key, &device).map_err(|source| match source {
        vfs::Error::Device(source) => failed(source),
        source => of_image(source),
    })?;
    device.flush().map_err(failed)?;
    new.keep().map_err(|refused| refused.at("make", out))?;
    Ok(ObfuscateReport { place: text::shown(out), image_bytes, remarks })
}
