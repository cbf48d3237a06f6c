//! Diskwright: ext4 and XFS in user space.
//!
//! - [`Image`] is an open image: a file, or a partition of a disk image. It detects its format. Its methods are the
//!   functions of `std::fs`, and [`ImageOptions`] opens it in other ways.
//! - [`mod@fs`] has the files, directories and options of these methods.
//! - [`build`] builds an image from directories, archives, container images and other images.
//! - [`Image::file_system`] gives the modules below access to an image. [`edit`] and [`copy`] implement `mkdir`, `rm`,
//!   `cp` and similar commands.
//! - [`apply`](mod@apply) applies a container image layer to an image. [`diff`](mod@diff) compares two images or
//!   creates the layer.
//! - `mount` serves an image as a directory: by FUSE on Linux, or by NFS on Linux and macOS.
//! - `serve` exports an image as a network block device. `volume` manages block devices stored in a bucket.
//! - [`mod@check`] checks an image, and [`repair`] repairs it.
//! - [`resize`] grows or shrinks an image in place.
//! - [`damaged`] finds files that cannot be read completely, such as those on bad areas of a disk.
//! - [`list`], [`find`], [`extract`] and [`dump`](mod@dump) implement the commands of the same names.
//! - [`mod@tune`] changes superblock settings.
//! - [`quota`] shows and changes quotas, limits and grace times.
//! - [`mod@dedupe`] shares the blocks of equal files in an XFS image.
//! - [`clones`] creates writable clones of an image, with snapshots.
//! - `anywhere` reads images that are not local files (feature `anywhere`).
//! - `publish` publishes images in object storage, and `bundle` stores their metadata beside them (feature `anywhere`).
//! - [`block_copy`] copies the blocks in use of an image, also as increments.
//! - [`mod@deleted`] finds deleted files, and writes timelines.
//! - [`devices`] lists the disks and partitions of the host.
//! - [`disk_map`] draws the disk layout of an image.
#![forbid(unsafe_code)]
// Without the feature `build`, some items of the code that opens images are unused.
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
pub mod block_copy;
#[cfg(feature = "build")]
pub mod build;
#[cfg(feature = "anywhere")]
pub mod bundle;
#[cfg(feature = "check")]
pub mod check;
#[cfg(all(feature = "build", target_os = "linux"))]
mod claim;
#[cfg(feature = "build")]
#[cfg_attr(not(target_os = "linux"), path = "clone_portable.rs")]
mod clone;
#[cfg(feature = "build")]
pub mod clones;
pub mod closed_output;
#[cfg(feature = "build")]
pub mod copy;
#[cfg(feature = "build")]
mod copy_error;
#[cfg(feature = "check")]
pub mod damaged;
#[cfg(feature = "build")]
pub mod dedupe;
#[cfg(feature = "build")]
pub mod deleted;
#[cfg(feature = "build")]
pub mod devices;
#[cfg(feature = "build")]
pub mod diff;
#[cfg(feature = "check")]
pub mod disk_map;
#[cfg(feature = "build")]
mod disks;
mod dispatch;
#[cfg(feature = "build")]
pub mod dump;
#[cfg(feature = "build")]
pub mod edit;
mod error;
#[cfg(feature = "tar")]
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
mod mmp;
#[cfg(all(feature = "mount", unix))]
pub mod mount;
#[cfg(unix)]
#[doc(hidden)]
pub mod mounts;
#[cfg(feature = "build")]
pub mod output;
#[cfg(feature = "anywhere")]
pub mod publish;
#[cfg(feature = "build")]
pub mod quota;
#[cfg(feature = "build")]
mod record;
mod recovery;
#[cfg(feature = "build")]
pub mod repair;
#[cfg(feature = "build")]
#[cfg_attr(not(target_os = "linux"), path = "replace_portable.rs")]
mod replace;
#[cfg(feature = "build")]
pub mod resize;
#[cfg(feature = "tar")]
mod scout;
#[cfg(feature = "serve")]
pub mod serve;
#[cfg(feature = "build")]
#[cfg_attr(not(target_os = "linux"), path = "signals_portable.rs")]
mod signals;
#[cfg(feature = "anywhere")]
mod start_record;
pub mod text;
#[cfg(feature = "build")]
pub mod tune;
#[cfg(feature = "build")]
mod verity;
#[cfg(feature = "anywhere")]
pub mod volume;
#[cfg(feature = "build")]
mod windows_names;

pub use ::ext4::SuperblockPlace;
#[cfg(feature = "fscrypt")]
pub use ::ext4::fscrypt::EncryptionKeys;
#[cfg(feature = "layers")]
pub use ::layers::{Layer, LayerOptions, Passphrase};
pub use disk::partition;
pub use error::{Error, Outcome, Result};
pub use format::{Format, UnknownFormat};
#[cfg(feature = "build")]
pub use host::file_id;
pub use host::is_same_file;
#[cfg(feature = "layers")]
pub use image::ImageLayers;
pub use image::{
    Details, ExtDetails, ExtVersion, FeatureGroup, FileSystemRef, Image, ImageInfo, ImageOptions,
    ImageState, OtherDevices, Section, XfsDetails, XfsLog, XfsRealtime, device_number,
    open_other_device,
};
#[cfg(feature = "build")]
pub use record::Record;
pub use recovery::{RecoverDetails, RecoverReport};
#[cfg(feature = "build")]
pub use signals::{clean_up_on_signals, stop_on_signals};
pub use vfs::hint;

/// Compiles the examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/library.md")]
#[doc = include_str!("../../../../docs/design/library.md")]
struct Guide;
