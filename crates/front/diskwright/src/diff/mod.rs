//! Comparison of two trees by contents (`diskwright diff`), and output of the differences as a container image layer.
//!
//! Both trees are walked simultaneously, sorted by the bytes of their names. Memory is used for the directories on the
//! current path, files with several names, and a bounded number of files whose contents are compared at a time. A layer
//! also keeps its entries in memory. Archives and container images cannot be walked, so they are read first and their
//! names are kept in memory.
//!
//! ```no_run
//! use diskwright::diff::{DiffOptions, Observer, Side, diff, line};
//! use diskwright::Image;
//!
//! # struct Quiet;
//! # impl Observer for Quiet {
//! #     fn file(&mut self, _: &[u8]) {}
//! #     fn copied(&mut self, _: u64) {}
//! #     fn warning(&mut self, message: &str) {
//! #         eprintln!("{message}");
//! #     }
//! # }
//! # fn main() -> diskwright::Result<()> {
//! let old = Image::open("old.img")?;
//! let sides = (Side::Image(&old), Side::Directory("rootfs".as_ref()));
//! let report = diff(sides.0, sides.1, &DiffOptions::default().threads(2), &mut Quiet, &mut |change| {
//!     println!("{}", line(change));
//!     Ok(())
//! })?;
//! println!("{} paths are new", report.added);
//! # Ok(()) }
//! ```

mod attributes;
mod change;
mod compare;
mod compress;
mod contents;
mod held;
mod host;
mod image;
mod layer;
mod links;
mod report;
mod source_tree;
mod tree;

use std::path::Path;

use crate::{Image, Result};

pub use crate::extract::Observer;
pub use change::{Change, ChangeKind, Difference, Ignored, XattrChange};
pub use compare::{DiffOptions, DiffReport, diff};
pub use compress::Compression;
pub use layer::{LayerReport, diff_to_layer, diff_to_layer_file};
pub use report::{json, line};
pub use source_tree::SourceTree;

use tree::ComparedTree;

/// Tree to compare.
#[derive(Clone, Copy)]
pub enum Side<'a> {
    /// Image.
    Image(&'a Image),
    /// Host directory.
    Directory(&'a Path),
    /// Archive, container image or manifest.
    Source(&'a SourceTree),
}

impl<'a> Side<'a> {
    fn tree(self) -> Result<Box<dyn ComparedTree + 'a>> {
        Ok(match self {
            Self::Image(image) => Box::new(image::ImageTree::new(image)?),
            Self::Directory(path) => Box::new(host::HostTree::open(path)?),
            Self::Source(tree) => Box::new(tree),
        })
    }
}
