//! Independent checkers ("judges") and tools shared by Diskwright's tests: programs that this project did not write.
//!
//! - [`require!`] skips a test by name if a tool or ability is missing or too old, or fails it if
//!   `DISKWRIGHT_REQUIRE_TOOLS=1` is set (as in CI). `requirement.rs` lists the needs.
//! - A test program begins with `#[macro_use] extern crate testkit;`. Its tests then end as SKIPPED, even if `require!`
//!   is missing: see `skip.rs`.
//! - [`e2fsck`] and [`xfs_repair`] accept an image only if they report nothing at all; [`judge`] selects the one for
//!   the image's format. [`scrub`] uses the kernel, if it supports that.
//! - Images that they accept are also checked by Diskwright's own check (features `ext4` and `xfs`).
//! - [`KernelMount`] mounts an image through a loop device and always unmounts it.
//! - [`Tree`] contains everything that `lstat` and similar calls return for a directory tree, and [`assert_same`]
//!   reports the differences of two trees.
//! - [`copy_image`] copies an image without its zeros.
//! - [`show_image`] makes an image in memory accessible to a program that only reads it.
//! - [`shown_differences`] compares the kernel's view with that of this project's code.
//! - [`effort`] returns the number of seeds, rounds and states for `DISKWRIGHT_EFFORT`.
//! - [`harm`] damages structures of an image at random, [`Survivors`] counts the unaffected files, and [`Batches`] runs
//!   such cases by seed and keeps their results.
//! - [`wait_until`] waits for a condition without a time limit.
//! - [`guest`] runs jobs on a current kernel in QEMU, and checks images with it.
//! - [`model`] is the reference model of a file system, [`operation`] generates random steps for it, and [`fs_tree`]
//!   compares the trees of two file systems.
//! - [`trial`] contains tests that every format must pass, and [`walk`] traverses damaged images.
//! - [`crash`] explores crashes of random runs and contains the judges of crashed images; [`assert_survives`] does both.
//! - `MemoryImage` is an image in memory, which a judge accepts at the end.
//! - [`WebServer`] serves objects over HTTP, counts requests, and fails on purpose.
//! - [`stress`] runs a load like that of fsstress on a mounted directory.
//! - [`sample_tree`] creates source trees with every kind of entry.
//! - [`Mke2fs`], [`MkfsXfs`], [`debugfs`], [`xfs_db`] and [`populate_with_kernel`] create reference images;
//!   [`XFS_SAMPLES`] are images of several releases of xfsprogs.
//!
//! All functions panic on failure with the complete details, because their callers are tests.

#![forbid(unsafe_code)]

mod batches;
mod canvas;
mod check;
mod compare;
pub mod crash;
mod effort;
mod explore;
pub mod fs_tree;
pub mod guest;
mod harm;
mod loop_device;
#[cfg(all(feature = "ext4", feature = "xfs"))]
mod memory_image;
pub mod model;
mod mount;
mod need;
pub mod operation;
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
pub mod trial;
mod wait;
pub mod walk;
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
pub use loop_device::LoopDevice;
#[cfg(all(feature = "ext4", feature = "xfs"))]
pub use memory_image::{MemoryImage, on_both_formats};
pub use mount::{KernelMount, MountOptions, unmount_from};
pub use need::{Need, missing, satisfied};
pub use reference::{Mke2fs, debugfs, debugfs_write, populate_with_kernel};
pub use requirement::is_known_program;
pub use sample::{Sample, sample_tree};
pub use scratch::scratch;
pub use shown::{Leave, shown_differences};
pub use skip::{run_test, skip};
pub use sparse::{copy_image, digest};
pub use survivors::Survivors;
pub use testkit_macros::test;
pub use tool::{command, copy_program, program};
pub use tree::{HOLE_GRANULE, Node, NodeKind, Tree};
pub use wait::{HANG_AFTER, umount_when_free, wait_until};
pub use web::{RawServer, WebFault, WebRequest, WebServer};
pub use xfs::{MkfsXfs, scrub, xfs_db, xfs_db_write};
pub use xfs_sample::{Filled, XFS_SAMPLES, XfsSample};
