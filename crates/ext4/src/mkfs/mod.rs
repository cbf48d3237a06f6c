//! Making file systems: [`plan`] decides where everything goes, without I/O; [`format()`] writes it.
//!
//! The result is what mke2fs 1.47 makes from the same numbers, with these deliberate differences:
//! - the block size is 4 KiB unless asked for or the image is below 8 MiB (mke2fs takes 1 KiB
//!   below 512 MiB), and the inode ratio is always 16 KiB (mke2fs takes less below 512 MiB);
//! - directory hashes are always signed, whatever the machine, so that images are reproducible;
//! - a feature that rests on one that was turned off goes with it, unless it was asked for;
//! - empty directories are not stored inline.

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
pub use options::{FeatureChange, InodeCount, Options, default_feature_names};
pub use tuning::{Encoding, Place, Tuning};
pub use write::{Contents, format};

/// Decides where everything of a new file system goes.
///
/// # Errors
/// `Invalid` says which option cannot be, `Unsupported` names a feature this build cannot make,
/// `NoSpace` if the fixed structures do not fit.
pub fn plan(options: &Options) -> vfs::Result<Layout> {
    layout::plan(options)
}
