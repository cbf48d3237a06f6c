//! Diskwright: ext4 and XFS in user space.
//!
//! - [`Image`] opens an image file, or a partition of a disk image, whatever format it has;
//!   [`vfs::Paths`] reads it like `std::fs`.
//! - [`build`] makes an image of directories, archives, container images and other images.
//! - [`Image::edit`] opens one to change it: [`edit`] and [`copy`] are what `mkdir`, `rm`, `cp` and
//!   their like do.
//! - [`apply`](mod@apply) applies a layer of a container image to one, and [`diff`](mod@diff) tells two of them apart, or makes
//!   the layer.
//! - [`mod@mount`] serves an image as a directory to every program of the machine.
//! - [`mod@workload`] has the places that workloads are run in, to be compared.
//! - [`mod@check`] finds what is wrong in an image, and [`repair`] mends it.
//! - [`resize`] makes one larger or smaller in place.
//! - [`list`], [`find`], [`extract`] and [`dump`](mod@dump) are what the commands of the same names do.
#![forbid(unsafe_code)]

pub mod apply;
pub mod build;
pub mod check;
mod clone;
pub mod copy;
pub mod diff;
pub mod dump;
pub mod edit;
mod error;
pub mod extract;
pub mod find;
mod image;
pub mod list;
mod lock;
pub mod lsattr;
pub mod mount;
mod mounts;
pub mod output;
pub mod partition;
mod record;
pub mod repair;
mod replace;
pub mod resize;
mod signals;
mod stop;
pub mod text;
mod verity;
pub mod workload;

pub use error::{Error, Outcome, Result};
pub use image::{FeatureGroup, Image, ImageInfo, OpenImage, Section};
pub use record::Record;
pub use signals::clean_up_on_signals;
pub use stop::stop_on_signals;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
