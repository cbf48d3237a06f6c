//! Crashes of images whose journal is on another device.

use testkit::crash::{Options, PairJudge, PairTarget};
use testkit::operation::Mix;
use testkit::require;

use super::support::{EXT4, made};
use super::{JOURNAL_BYTES, SIZE};

/// Returns images with blocks of 4 KiB and of 1 KiB.
fn two_devices() -> PairTarget {
    let mut target = PairTarget::new(&EXT4, [SIZE, JOURNAL_BYTES]);
    // See `Ext4Target`.
    target.indivisible.push(1024..2048);
    let with = |target: PairTarget, size| target.with(&made(SIZE, JOURNAL_BYTES, size), |_| ());
    [4096, 1024].into_iter().fold(target, with)
}

/// Syncs often: only what a sync promised can be lost with a flush.
const SYNCING: Mix = Mix { sync: 40, ..Mix::ALL };

fn options() -> Options {
    Options { mixes: vec![SYNCING, Mix::ALL, Mix::METADATA], ..Options::default() }
}

#[test]
fn a_journal_on_another_device_survives_a_crash_anywhere() {
    require!(Tool("e2fsck"), Mount("ext4"), Loop);
    let target = two_devices();
    let [ours, theirs] = [false, true].map(|asks_kernel| PairJudge::new(&target, asks_kernel));
    testkit::assert_survives(&target, &[&ours, &theirs], options(), 200);
}

#[test]
fn a_flush_that_one_of_two_devices_loses_is_found_out() {
    let mut target = two_devices();
    for swallows_flushes in [[true, false], [false, true]] {
        target.swallows_flushes = swallows_flushes;
        let mixes = vec![SYNCING];
        let report = testkit::explore(&target, &[], Options { mixes, ..options() }, 300);
        assert!(report.failures.len() >= 2, "{swallows_flushes:?}: {}", report.failures.len());
    }
}
