//! Making file systems: [`plan`] decides where everything goes, without I/O; [`format()`] writes it.
//!
//! The result is what mkfs.xfs 7.2 makes of a file with the same options, with these deliberate
//! differences:
//! - the root directory has no `xfs:autofsck` attribute, which would appear among the attributes of
//!   the tree;
//! - inodes start with generation 0 where mkfs.xfs draws random numbers, so that images are
//!   reproducible;
//! - the superblock always says that attributes may be in use;
//! - without parent pointers or large extent counters, the smallest log is rounded up over all sizes
//!   of groups, and a log that fills its group leaves room for the group's AGFL.
//!
//! `docs/xfs.md` has the rules that sizes follow.

mod added;
mod headers;
mod inodes;
mod layout;
mod log_size;
mod numbers;
mod options;
mod roots;
mod write;

pub use layout::Layout;
pub use options::{Feature, FeatureChange, LABEL_LEN_MAX, Options, SIZE_MIN, SMALL_SIZE_MIN};
pub use write::{Contents, format};

/// Decides where everything of a new file system goes.
///
/// # Errors
/// `Invalid` says which option cannot be, `Unsupported` names a feature this build cannot make,
/// `NoSpace` if the fixed structures do not fit.
pub fn plan(options: &Options) -> vfs::Result<Layout> {
    layout::plan(options)
}
