//! Application of a container image layer to an image in place (`diskwright apply`).
//!
//! All steps that may fail come first and are invisible: the layer is read completely, and file contents are written to
//! files without names and made durable. Then only names change: whiteouts first, then the entries in layer order. If
//! this fits one checkpoint of the journal or log, it is atomic, even on failure: changes that are not durable are
//! dropped. Otherwise it is applied in several steps, and files are complete after each one.
//!
//! ```no_run
//! use diskwright::ImageOptions;
//! use diskwright::apply::{LayerFile, LayerLimits, LayerOptions, Observer, apply};
//! use diskwright::edit::Policy;
//!
//! # struct Quiet;
//! # impl Observer for Quiet {
//! #     fn file(&mut self, _: &[u8]) {}
//! #     fn copied(&mut self, _: u64) {}
//! #     fn warning(&mut self, message: &str) {
//! #         eprintln!("{message}");
//! #     }
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layer = LayerFile::load(
//!     "layer.tar.zst".as_ref(),
//!     "/var/tmp".as_ref(),
//!     &LayerLimits::default(),
//!     &LayerOptions::default(),
//! )?;
//! let place = ImageOptions::default();
//! let report = apply(&layer, "root.img".as_ref(), &place, Policy::now(None), &mut Quiet)?;
//! println!("{} files, {} names removed", report.files, report.removed);
//! # Ok(()) }
//! ```

mod hide;
mod place;
mod put;
mod stage;

use std::path::Path;

use import::oci::ContainerFault;
use serde::Serialize;

use crate::edit::{Editor, Policy};
use crate::list::join;
use crate::{Error, ImageOptions, Result};

pub use crate::extract::Observer;
pub use import::Options as LayerOptions;
pub use import::oci::{LayerFile, Limits as LayerLimits};

use put::Putter;
use stage::Staged;

/// Result of applying a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ApplyReport {
    /// Number of entries, whiteouts included.
    pub entries: u64,
    /// Names removed by whiteouts or replaced by files of another type.
    pub removed: u64,
    /// Directories that were created or changed.
    pub directories: u64,
    /// Other files that were created.
    pub files: u64,
    /// Hard links to existing files.
    pub links: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// True if the whole change is atomic.
    pub one_change: bool,
}

/// Reason why an entry cannot be applied.
enum Fault {
    /// The entry conflicts with existing files or is not valid in a layer.
    Layer(ContainerFault),
    FileSystem(vfs::Error),
    /// Error that contains the file name itself.
    Whole(Error),
}

impl From<vfs::Error> for Fault {
    fn from(error: vfs::Error) -> Self {
        Self::FileSystem(error)
    }
}

impl From<ContainerFault> for Fault {
    fn from(fault: ContainerFault) -> Self {
        Self::Layer(fault)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Whole(error)
    }
}

impl Fault {
    fn of_entry(self, layer: &LayerFile, path: &[u8]) -> Error {
        match self {
            Self::Layer(fault) => layer.error(fault, path).into(),
            Self::FileSystem(error) => Error::file(&join(b"/", path), error),
            Self::Whole(error) => error,
        }
    }
}

/// Applies a layer to an image.
///
/// The rules are those of the image specification. Whiteouts affect the contents before the layer, regardless of their
/// order. Existing directories are kept and get the attributes from the layer; other files are replaced. Directories
/// whose names change keep their modification times, unless the layer lists them.
///
/// # Errors
/// If the image is in use, the layer conflicts with it, or there is no space. Nothing has changed then, unless the
/// error contains the number of applied entries.
pub fn apply(
    layer: &LayerFile,
    image: &Path,
    place: &ImageOptions,
    policy: Policy,
    observer: &mut dyn Observer,
) -> Result<ApplyReport> {
    let open = place.clone().write(true).open(image)?;
    let fs = open.file_system()?;
    let editor = fs.editor(policy);
    let staged = match Staged::fill(editor, layer, observer) {
        Ok(staged) => staged,
        Err(error) => {
            // Report the earlier error instead.
            drop(fs);
            let _ = open.close();
            return Err(error);
        }
    };
    let before = fs.checkpoints_closed();
    let mut putter = Putter::new(editor, layer, &staged);
    let put = putter.run(observer);
    let (report, applied) = putter.end();
    let one_change = before.is_some() && before == fs.checkpoints_closed();
    let Err(error) = put else {
        staged.close(&*fs);
        drop(fs);
        open.close()?;
        return Ok(ApplyReport { one_change, ..report });
    };
    if one_change {
        // Nothing is durable except files without names, which recovery removes.
        drop(fs);
        open.abandon();
        let _ = place.recover(image);
        return Err(error);
    }
    staged.close(&*fs);
    drop(fs);
    let _ = open.close();
    Err(in_part(error, applied, layer))
}

/// Applies a layer to a file system that is open for writing, like [`apply()`]. The caller makes the changes durable.
///
/// # Errors
/// Same as [`apply()`], but entries applied before the error remain.
pub fn apply_in(
    editor: Editor<'_>,
    layer: &LayerFile,
    observer: &mut dyn Observer,
) -> Result<ApplyReport> {
    let staged = Staged::fill(editor, layer, observer)?;
    let mut putter = Putter::new(editor, layer, &staged);
    let put = putter.run(observer);
    let (report, applied) = putter.end();
    staged.close(editor.fs());
    put.map(|()| report).map_err(|error| in_part(error, applied, layer))
}

fn in_part(error: Error, applied: u64, layer: &LayerFile) -> Error {
    let entries = layer.entries().len() as u64;
    Error::AppliedInPart { applied, entries, source: Box::new(error) }
}
