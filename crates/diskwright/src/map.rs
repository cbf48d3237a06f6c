//! What `diskwright map` does: a picture of what lies where in an image.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use diskwright::OpenImage;
//! use diskwright::map::{CELLS_MAX, Options, survey, svg, write_file};
//!
//! # fn main() -> diskwright::Result<()> {
//! let place = OpenImage::default();
//! let mapped = survey("root.img".as_ref(), &place, CELLS_MAX, &mut |_, _| ControlFlow::Continue(()))?;
//! let options = Options { title: "root".into(), format: mapped.format, ..Options::default() };
//! write_file("root.svg".as_ref(), svg(&mapped.survey, &options).as_bytes(), false)?;
//! # Ok(()) }
//! ```

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

pub use ::map::{CELLS_MAX, Curve, Figures, Options, Survey, html, svg, text};

use crate::image::open_layout;
use crate::replace::{Replace, Replacement};
use crate::{Error, OpenImage, Result};

/// What lies where in an image, and what the image is.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// What lies where.
    pub survey: Survey,
    /// Its format: `ext2`, `ext3`, `ext4` or `xfs`.
    pub format: String,
    /// Damage that did not keep it from being opened.
    pub remarks: Vec<String>,
}

/// Looks at what lies where in an image, in at most so many equal parts of it. `progress` is told how many units of work
/// of how many are done, and says whether to go on.
///
/// # Errors
/// If the image cannot be opened, or a device fails that has its log. Other damage is among the remarks of the survey.
pub fn survey(
    path: &Path,
    options: &OpenImage,
    cells: usize,
    progress: &mut dyn FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<Mapped> {
    let (fs, info, remarks) = open_layout(path, options)?;
    let at = |source| Error::Image { image: path.to_owned(), source };
    let survey = Survey::take(&*fs, cells, progress).map_err(at)?;
    Ok(Mapped { survey, format: info.format, remarks })
}

/// Writes a picture to a file, which gets its name when it is whole. With `force` it replaces another one then.
///
/// # Errors
/// If there is such a file and it is not to be replaced, or it cannot be written.
pub fn write_file(path: &Path, bytes: &[u8], force: bool) -> Result<()> {
    let replace = if force { Replace::Anything } else { Replace::Nothing };
    let new = Replacement::create(path, replace).map_err(|e| e.at("make", path))?;
    new.file().write_all(bytes).map_err(|e| Error::host("write", path, e))?;
    new.keep().map_err(|e| e.at("make", path))
}
