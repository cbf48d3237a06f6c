//! Making file systems: [`plan`] decides the layout without I/O; [`format()`] writes it.
//!
//! The result equals that of mkfs.xfs 7.2 on a file with the same options, with these deliberate differences:
//! - the root directory has the attribute `xfs:autofsck` only on demand, because it appears among the attributes of the
//!   tree;
//! - inodes start with generation 0 instead of random numbers, so that images are reproducible;
//! - realtime groups have another default size, and their files other places;
//! - the superblock always has the feature bit for attributes;
//! - without parent pointers or large extent counters, the minimum log is rounded up over all sizes of groups, and a
//!   log that fills its group leaves room for the group's AGFL.
//!
//! `docs/xfs.md` has the rules for sizes.

mod added;
mod headers;
mod inodes;
mod layout;
mod log_size;
mod numbers;
mod options;
mod realtime;
mod realtime_fields;
mod realtime_group_fields;
mod realtime_groups;
mod roots;
mod write;

pub use layout::Layout;
pub(crate) use log_size::{blocks_min as log_blocks_min, blocks_min_with_realtime};
pub use numbers::LOG_BYTES_MAX;
pub use options::{
    Autofsck, Feature, FeatureChange, Inherited, LABEL_LEN_MAX, Options, RealtimeSection, SIZE_MIN,
    SMALL_SIZE_MIN, Stripe,
};
pub use write::{PreviousContents, format};

/// Plans the layout of a new file system.
///
/// # Errors
/// `Invalid` for an invalid option, `Unsupported` for a feature that this build cannot make, `NoSpace` if the fixed
/// structures do not fit.
pub fn plan(options: &Options) -> vfs::Result<Layout> {
    layout::plan(options)
}
