//! Surveys of image files.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use super::{Domain, RescueDomain, Survey, rescue_domain};
use crate::replace::{Replace, Replacement};
use crate::{Error, ImageOptions, Result};

/// Layout and format of an image.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// Disk layout.
    pub survey: Survey,
    /// Format: `ext2`, `ext3`, `ext4` or `xfs`.
    pub format: &'static str,
    /// Damage that did not prevent opening.
    pub remarks: Vec<String>,
}

/// Surveys the layout of an image in at most `cells` equal parts. `progress` receives the completed and total units of
/// work, and returns whether to continue.
///
/// # Errors
/// If the image cannot be opened, or the device of its log fails. Other damage is in the remarks of the survey.
pub fn survey(
    path: &Path,
    options: &ImageOptions,
    cells: usize,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Mapped> {
    let image = options.open_rootless(path)?;
    let at = |source| Error::image(path, source);
    let fs = image.file_system()?;
    let survey = Survey::take(fs.layout(), cells, progress).map_err(at)?;
    let remarks = image.remarks().to_vec();
    Ok(Mapped { survey, format: image.info()?.format_name(), remarks })
}

/// Returns the blocks of an image in use as a mapfile of GNU ddrescue. Positions are those of the whole file, also if the
/// image is a part of it.
///
/// # Errors
/// Same as [`survey`].
pub fn rescue_domain_of(
    path: &Path,
    options: &ImageOptions,
    domain: Domain,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<RescueDomain> {
    let (image, start, device_bytes) = options.open_in_file(path)?;
    let fs = image.file_system()?;
    let mut map = rescue_domain(fs.layout(), domain, start, device_bytes, progress)
        .map_err(|source| Error::Image { image: path.to_owned(), source })?;
    map.remarks.splice(..0, image.remarks().iter().cloned());
    Ok(map)
}

/// Writes a picture to a file that is renamed into place when complete. With `force` it replaces an existing file.
///
/// # Errors
/// If the file exists and must not be replaced, or cannot be written.
pub fn write_file(path: &Path, bytes: &[u8], force: bool) -> Result<()> {
    let replace = if force { Replace::Anything } else { Replace::Nothing };
    let new = Replacement::create(path, replace).map_err(|e| e.at("make", path))?;
    new.file().write_all(bytes).map_err(|e| Error::host("write", path, e))?;
    new.keep().map_err(|e| e.at("make", path))
}
