//! A picture of what lies where on the disk of a file system.
//!
//! [`Survey::take`] asks an open file system of any format what its blocks are used for, and counts that in cells: equal
//! parts of the disk, so that memory depends on the number of cells and not on the size of the image. A survey is
//! drawn by [`svg`], with tables around it by [`html`], with letters by [`text`], and [`Figures`] are all its numbers, to
//! be serialised.
//!
//! Nothing here reads a file, starts a thread or asks what time it is, so that all of it works in a browser.
//!
//! ```
//! # use diskwright_map as map;
//! # use map::{Curve, Options, Survey};
//! # fn picture(fs: &dyn vfs::survey::TellsLayout) -> vfs::Result<String> {
//! let survey = Survey::take(fs, 4096, &mut |_done, _total| std::ops::ControlFlow::Continue(()))?;
//! let options = Options { title: "root.img".into(), format: "ext4".into(), curve: Curve::Rows };
//! Ok(map::svg(&survey, &options))
//! # }
//! ```
#![forbid(unsafe_code)]

mod cells;
mod curve;
mod figures;
mod histogram;
mod html;
mod survey;
mod svg;
mod text;
mod words;

pub use cells::Cells;
pub use curve::Curve;
pub use figures::Figures;
pub use histogram::{Bucket, Histogram};
pub use html::html;
pub use survey::{CELLS_MAX, Files, Fragmented, Survey};
pub use svg::svg;
pub use text::text;
pub use words::word;

/// What a picture says beside what was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What the image is called.
    pub title: String,
    /// Its format, as people call it.
    pub format: String,
    /// How the disk goes through the picture.
    pub curve: Curve,
}
