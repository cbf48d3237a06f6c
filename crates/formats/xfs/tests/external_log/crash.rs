//! Crashes of images whose log is on another device.

use testkit::crash::{Options, PairJudge, PairTarget};
use testkit::operation::Mix;
use testkit::require;
use vfs::{FileSystem, NewInode};
use xfs::{OpenOptions, Xfs};

use super::support::{XFS, blocks_left, made};
use super::{LOG_BYTES, SIZE};
use crate::changing::{SMALL_CACHE_BYTES, SYNCING};

/// Returns an empty image, and one whose log will soon wrap around.
fn two_devices() -> PairTarget {
    let target = PairTarget::new(&XFS, [SIZE, LOG_BYTES]);
    let parts = made(SIZE, LOG_BYTES);
    target.with(&parts, |_| ()).with(&parts, |device| {
        let options = OpenOptions { cache_bytes: SMALL_CACHE_BYTES, ..OpenOptions::default() };
        let fs = Xfs::open_writable(device.clone(), &options).unwrap();
        while blocks_left(&*device) > 600 {
            for number in 0..40 {
                let name = format!("worn {number}");
                fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
                fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
                fs.sync().unwrap();
            }
        }
        Xfs::close(fs).unwrap();
    })
}

fn options() -> Options {
    Options { mixes: vec![SYNCING, Mix::ALL, Mix::METADATA], ..Options::default() }
}

#[test]
fn a_log_on_another_device_survives_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"), Loop);
    let target = two_devices();
    let [ours, theirs] = [false, true].map(|asks_kernel| PairJudge::new(&target, asks_kernel));
    testkit::assert_survives(&target, &[&ours, &theirs], options(), 200);
}

#[test]
fn a_flush_that_one_of_two_devices_loses_is_found_out() {
    let mut target = two_devices();
    for swallows_flushes in [[true, false], [false, true]] {
        target.swallows_flushes = swallows_flushes;
        let report = testkit::explore(&target, &[], options(), 200);
        assert!(report.failures.len() >= 5, "{swallows_flushes:?}: {}", report.failures.len());
    }
}
