//! Overlay files, which store changes of a base image: reading.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::OverlayFile;
use disk::overlay_file::{About, OverlayError};

use super::open::{Base, open_base};
use crate::{Error, Result, lock};

/// Open overlay with its base.
pub(super) struct Overlay {
    pub(super) device: OverlayFile,
    pub(super) about: About,
}

/// Opens an overlay for reading, on its original base or on `base`.
pub(super) fn read(file: &Path, base: Option<&Path>) -> Result<Overlay> {
    let locked = lock::open_to_read(file, false)?;
    let storage = lock::device(file, locked)?;
    let (about, _) = About::read(&storage).map_err(|e| told(file, e))?;
    let word = base.map_or_else(|| PathBuf::from(&about.base), Path::to_owned);
    let Base { device, identity } = open_base(&word)?;
    let opened = OverlayFile::open(Arc::new(storage), device, &identity);
    Ok(Overlay { device: opened.map_err(|e| told(file, e))?, about })
}

pub(super) fn told(file: &Path, error: OverlayError) -> Error {
    let advice = match error {
        OverlayError::Device(error) => return Error::host("read", file, error),
        OverlayError::OtherBase { .. } => "use the image of this overlay, or another overlay",
        _ => "use an overlay created by mount --overlay, or a new file name",
    };
    let source = vfs::Error::unsupported(error.to_string(), advice);
    Error::image(file, source)
}
