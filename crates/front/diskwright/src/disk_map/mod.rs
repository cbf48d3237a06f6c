//! Pictures of the use of a file system's disk.
//!
//! [`Survey::take`] queries an open file system of any format for the use of its blocks and counts them in cells: equal
//! parts of the disk, so that memory depends on the number of cells and not on the size of the image. [`svg`] draws a
//! survey, [`html`] adds tables, [`text`] uses letters, and [`Figures`] contains all numbers for serialisation.
//!
//! Apart from `survey` and `write_file`, nothing here reads files, starts threads or uses a clock, so it works in a browser.
//!
//! ```
//! # use diskwright::disk_map::{self, Curve, Options, Survey};
//! # fn picture(fs: &dyn vfs::survey::TellsLayout) -> vfs::Result<String> {
//! let survey = Survey::take(fs, 4096, &mut |_done, _total| std::ops::ControlFlow::Continue(()))?;
//! let options = Options { title: "root.img".into(), format: "ext4".into(), curve: Curve::Rows };
//! Ok(disk_map::svg(&survey, &options))
//! # }
//! ```

mod cells;
mod curve;
mod ddrescue;
mod figures;
mod histogram;
mod html;
#[cfg(feature = "build")]
mod image;
mod survey;
mod svg;
mod text;
mod words;

pub use cells::Cells;
pub use curve::Curve;
pub use ddrescue::{Domain, RescueDomain, rescue_domain};
#[cfg(feature = "build")]
pub(crate) use ddrescue::{DomainBlocks, used_blocks};
pub use figures::Figures;
pub use histogram::{Bucket, Histogram};
pub use html::html;
#[cfg(feature = "build")]
pub use image::{Mapped, rescue_domain_of, survey, write_file};
pub use survey::{CELLS_MAX, Files, Fragmented, Survey};
pub use svg::svg;
pub use text::text;
pub use words::word;

/// Settings of a picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Name of the image.
    pub title: String,
    /// Name of its format for people.
    pub format: String,
    /// Order of the cells in the picture.
    pub curve: Curve,
}
