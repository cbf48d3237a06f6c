//! The judges that Diskwright's tests share: programs this project did not write.
//!
//! - [`require!`] skips a test by name where a tool or ability is missing or too old, or fails it
//!   when `DISKWRIGHT_REQUIRE_TOOLS=1` is set (as CI does). `requirement.rs` says what each need is.
//! - A test program begins with `#[macro_use] extern crate oracle;`. Its tests then end as SKIPPED, also where one
//!   forgot `require!`: see `skip.rs`.
//! - [`e2fsck`] and [`xfs_repair`] accept an image only if they have nothing at all to say about it;
//!   [`judge`] asks the one that knows the image's format. [`scrub`] asks the kernel, where it offers that.
//! - What they accept is shown to Diskwright's own check, too (features `ext4` and `xfs`).
//! - [`KernelMount`] mounts an image through a loop device and always unmounts it.
//! - [`Tree`] is everything `lstat` and its friends know about a directory tree, and
//!   [`assert_same`] tells where two of them differ.
//! - [`copy_image`] copies an image without what is zero.
//! - [`show_image`] shows an image in memory to a program that only reads it.
//! - [`shown_differences`] compares what the kernel shows with what this project's own code shows.
//! - [`effort`] gives the number of seeds, rounds and states that `DISKWRIGHT_EFFORT` asks for.
//! - [`harm`] damages structures of an image at random, [`Survivors`] counts the files that are left as they were, and
//!   [`Batches`] runs such cases by seed and keeps their results.
//! - [`wait_until`] waits for what a test needs, for no time.
//! - [`guest`] runs jobs on a current kernel in QEMU, and has its judgements on images.
//! - [`crash`] has the judges of crashed images, and [`assert_survives`] explores crashes with them.
//! - [`WebServer`] serves objects over HTTP, counts requests, and fails on purpose.
//! - [`stress`] puts a load like fsstress's on a mounted directory.
//! - [`sample_tree`] makes source trees with every kind of entry a file system can hold.
//! - [`Mke2fs`], [`MkfsXfs`], [`debugfs`], [`xfs_db`] and [`populate_with_kernel`] make reference images;
//!   [`XFS_SAMPLES`] are such, by several releases of xfsprogs.
//!
//! Everything here panics on failure with the full story, because its callers are tests.

#![forbid(unsafe_code)]

mod batches;
mod canvas;
mod check;
mod compare;
pub mod crash;
mod effort;
mod explore;
pub mod guest;
mod harm;
mod mount;
mod need;
mod ours;
mod reference;
mod requirement;
mod sample;
mod scratch;
mod shown;
mod skip;
mod sparse;
pub mod stress;
mod survivors;
mod tool;
mod tree;
mod wait;
mod web;
mod xfs;
mod xfs_sample;

pub use batches::{BATCH_CASES, Batches};
pub use canvas::{show_bytes, show_image};
pub use check::{
    Format, e2fsck, e2fsck_verdict, judge, verdict, xfs_repair, xfs_repair_alone,
    xfs_repair_verdict,
};
pub use compare::{Ignore, assert_same, differences};
pub use effort::{Effort, effort};
pub use explore::{assert_survives, explore};
pub use harm::{HarmTarget, harm};
pub use mount::{KernelMount, MountOptions, unmount_from};
pub use need::{Need, missing, satisfied};
pub use oracle_test::test;
pub use reference::{Mke2fs, debugfs, debugfs_write, populate_with_kernel};
pub use requirement::is_known_program;
pub use sample::{Sample, sample_tree};
pub use scratch::scratch;
pub use shown::{Leave, shown_differences};
pub use skip::{run_test, skip};
pub use sparse::{copy_image, digest};
pub use survivors::Survivors;
pub use tool::{command, copy_program, program};
pub use tree::{HOLE_GRANULE, Kind, Node, Tree};
pub use wait::{HANG_AFTER, umount_when_free, wait_until};
pub use web::{RawServer, WebFault, WebRequest, WebServer};
pub use xfs::{MkfsXfs, scrub, xfs_db, xfs_db_write};
pub use xfs_sample::{Filled, XFS_SAMPLES, XfsSample};
