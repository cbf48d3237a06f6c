//! What `diskwright apply` does: applies a layer of a container image to an image in place.
//!
//! First everything that can fail is done where nobody sees it: the layer is read to its end, and the contents of its
//! files go into files without names, which are made durable. Then come the names, and nothing but names: whiteouts
//! first, then the entries in the order of the layer. If that fits one checkpoint of the journal or log, it happens as
//! a whole or not at all, also when it fails half way: what is not durable is dropped. Otherwise it happens in steps,
//! each of which leaves whole files.
//!
//! ```no_run
//! use diskwright::OpenImage;
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
//! let place = OpenImage::default();
//! let report = apply(&layer, "root.img".as_ref(), &place, Policy::now(None), &mut Quiet)?;
//! println!("{} files, {} names removed", report.files, report.removed);
//! # Ok(()) }
//! ```

mod hide;
mod place;
mod put;
mod stage;

use std::path::Path;

use serde::Serialize;
use source::oci::ContainerFault;

use crate::edit::{Editor, Policy};
use crate::list::join;
use crate::{Error, Image, OpenImage, Result};

pub use crate::extract::Observer;
pub use ::source::Options as LayerOptions;
pub use ::source::oci::{LayerFile, Limits as LayerLimits};

use put::Putter;
use stage::Staged;

/// What was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ApplyReport {
    /// Entries of the layer, whiteouts included.
    pub entries: u64,
    /// Names that whiteouts took away, or that something of another type took the place of.
    pub removed: u64,
    /// Directories that were made, or that got other attributes.
    pub directories: u64,
    /// Files of other types that were made.
    pub files: u64,
    /// Names that were given to files that were there already.
    pub links: u64,
    /// Bytes of contents, without holes.
    pub bytes: u64,
    /// Whether all of it was one change, which a kill leaves undone or done.
    pub one_change: bool,
}

/// Why an entry cannot be applied.
enum Fault {
    /// It does not go with what is there, or is nothing that a layer may hold.
    Layer(ContainerFault),
    FileSystem(vfs::Error),
    /// An error that names the file itself.
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
/// The rules are those of the image specification: whiteouts act on what the image held before, whatever the order of
/// entries; directories that are there are kept and get the attributes of the layer's; anything else is replaced.
/// Directories whose names change keep their modification times, unless the layer lists them.
///
/// # Errors
/// If somebody uses the image, if the layer does not go with it, or if there is no space. Nothing has changed then,
/// unless the error says how much was applied.
pub fn apply(
    layer: &LayerFile,
    image: &Path,
    place: &OpenImage,
    policy: Policy,
    observer: &mut dyn Observer,
) -> Result<ApplyReport> {
    let open = Image::edit(image, place)?;
    let editor = open.editor(policy);
    let staged = match Staged::fill(editor, layer, observer) {
        Ok(staged) => staged,
        Err(error) => {
            // The error that led here is the one to tell.
            let _ = open.close();
            return Err(error);
        }
    };
    let before = open.checkpoints_closed();
    let mut putter = Putter::new(editor, layer, &staged);
    let put = putter.run(observer);
    let (report, applied) = putter.end();
    let one_change = before.is_some() && before == open.checkpoints_closed();
    let Err(error) = put else {
        staged.close(editor.fs());
        open.close()?;
        return Ok(ApplyReport { one_change, ..report });
    };
    if one_change {
        // Nothing of it is durable, but for files without names, which recovery removes.
        drop(open);
        let _ = Image::recover(image, place);
        return Err(error);
    }
    staged.close(editor.fs());
    let _ = open.close();
    Err(in_part(error, applied, layer))
}

/// Applies a layer to a file system that is open for writing, as [`apply()`] does. What it changes becomes durable
/// when the file system says so.
///
/// # Errors
/// As [`apply()`], but what was applied before the error stays.
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
