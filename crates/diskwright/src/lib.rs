//! Diskwright: ext4 and XFS in user space.
//!
//! - [`mod@fs`] is for programs: images and the files in them, to read and to write as `std::fs` does.
//! - [`Image`] opens an image file, or a partition of a disk image, whatever format it has;
//!   [`vfs::Paths`] reads it like `std::fs`.
//! - [`build`] makes an image of directories, archives, container images and other images.
//! - [`Image::edit`] opens one to change it: [`edit`] and [`copy`] are what `mkdir`, `rm`, `cp` and
//!   their like do.
//! - [`apply`](mod@apply) applies a layer of a container image to one, and [`diff`](mod@diff) tells two of them apart, or makes
//!   the layer.
//! - `mount` serves an image as a directory to every program of the machine, on Linux.
//! - `serve` offers one as a network block device, and `volume` has those that live in a bucket.
//! - [`mod@workload`] has the places that workloads are run in, to be compared.
//! - [`mod@check`] finds what is wrong in an image, and [`repair`] mends it.
//! - [`resize`] makes one larger or smaller in place.
//! - [`list`], [`find`], [`extract`] and [`dump`](mod@dump) are what the commands of the same names do.
//! - [`mod@tune`] changes what the superblock says of its file system.
//! - `anywhere` reads images that are no local files, with the feature of that name.
//! - `publish` publishes images in object storage, with the feature `anywhere`.
//! - [`mod@map`] draws what lies where in an image.
#![forbid(unsafe_code)]
// Opening an image has more to say to commands than to those who only read.
#![cfg_attr(not(feature = "build"), allow(dead_code))]

#[macro_use]
mod setters;

#[cfg(feature = "anywhere")]
pub mod anywhere;
#[cfg(not(feature = "anywhere"))]
mod anywhere;
#[cfg(feature = "build")]
pub mod apply;
#[cfg(feature = "build")]
pub mod build;
#[cfg(feature = "check")]
pub mod check;
#[cfg(all(feature = "build", target_os = "linux"))]
mod claim;
#[cfg(feature = "build")]
#[cfg_attr(not(target_os = "linux"), path = "clone_portable.rs")]
mod clone;
#[cfg(feature = "build")]
pub mod copy;
#[cfg(feature = "build")]
pub mod diff;
#[cfg(feature = "build")]
pub mod dump;
#[cfg(feature = "build")]
pub mod edit;
mod error;
#[cfg(feature = "build")]
pub mod extract;
#[cfg(feature = "build")]
pub mod find;
mod format;
pub mod fs;
mod host;
mod image;
mod inode;
#[cfg(feature = "build")]
pub mod list;
mod lock;
#[cfg(target_os = "linux")]
mod lock_of_caller;
#[cfg(feature = "build")]
pub mod lsattr;
#[cfg(feature = "build")]
mod made_names;
#[cfg(feature = "build")]
pub mod map;
#[cfg(all(feature = "mount", target_os = "linux"))]
pub mod mount;
#[cfg(target_os = "linux")]
mod mounts;
mod open_to_edit;
#[cfg(feature = "build")]
pub mod output;
#[cfg(feature = "anywhere")]
pub mod publish;
#[cfg(feature = "build")]
mod record;
#[cfg(feature = "build")]
pub mod repair;
#[cfg(feature = "build")]
#[cfg_attr(not(target_os = "linux"), path = "replace_portable.rs")]
mod replace;
#[cfg(feature = "build")]
pub mod resize;
#[cfg(feature = "build")]
mod scout;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "build")]
#[cfg_attr(not(target_os = "linux"), path = "signals_portable.rs")]
mod signals;
#[cfg(all(feature = "build", target_os = "linux"))]
mod stop;
pub mod text;
#[cfg(feature = "build")]
pub mod tune;
#[cfg(feature = "build")]
mod verity;
#[cfg(feature = "anywhere")]
pub mod volume;
#[cfg(feature = "build")]
mod windows_names;
#[cfg(feature = "workload")]
pub mod workload;
mod writable;

pub use ::ext4::SuperblockPlace;
pub use ::partition;
pub use error::{Error, Outcome, Result};
pub use format::Format;
#[cfg(feature = "build")]
pub use host::file_id;
pub use host::is_same_file;
pub use image::{FeatureGroup, Image, ImageInfo, OpenImage, Section};
#[cfg(feature = "build")]
pub use record::Record;
#[cfg(feature = "build")]
pub use signals::clean_up_on_signals;
#[cfg(all(feature = "build", not(target_os = "linux")))]
pub use signals::stop_on_signals;
#[cfg(all(feature = "build", target_os = "linux"))]
pub use stop::stop_on_signals;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Guide;
