//! Creation of file systems: [`plan`] decides the layout without I/O, [`format()`] writes it.
//!
//! The result is the same as that of mke2fs 1.47 with the same parameters, with these deliberate differences:
//! - The block size is 4 KiB unless requested otherwise or the image is below 8 MiB (mke2fs uses 1 KiB below 512 MiB),
//!   and the inode ratio is always 16 KiB (mke2fs uses less below 512 MiB).
//! - Directory hashes are always signed, on every machine, so that images are reproducible.
//! - If a feature is disabled, features that depend on it are disabled too, unless they were requested.
//! - Empty directories are not stored inline.

pub(crate) mod journal;
mod layout;
pub(crate) mod mapping;
mod numbers;
mod options;
pub(crate) mod space;
mod system_files;
mod tuning;
mod write;

pub use layout::Layout;
pub(crate) use layout::{place_groups, usual_places};
pub use options::{ExternalJournal, FeatureChange, InodeCount, Options, default_feature_names};
pub use tuning::{Encoding, Position, Tuning};
pub use write::{PreviousContents, format};

/// Plans the layout of a new file system.
///
/// # Errors
/// `Invalid` for an invalid option, `Unsupported` for a feature this build cannot create, `NoSpace` if the fixed
/// structures do not fit.
pub fn plan(options: &Options) -> vfs::Result<Layout> {
    layout::plan(options)
}
