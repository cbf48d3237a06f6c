//! Images created by `diskwright build`, checked by e2fsck and compared with the tree that the
//! kernel shows.

mod clones;
pub(crate) mod common;
mod containers;
mod dedupe;
mod directories;
mod ending;
mod failures;
mod features;
mod guest;
mod large_files;
mod outputs;
mod owners;
mod reproducible;
mod round_trip;
mod several;
mod sizes;
mod sources;
mod streams;
mod verity;
