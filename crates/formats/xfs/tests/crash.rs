//! Crashes at many moments of random runs that change XFS in place. The recovered state must be one that the model
//! allows, xfs_repair must report nothing, and the kernel must recover the same. The rules are in `testkit::crash`.
//! The logs of most images wrap around during a run.
//!
//! A failure prints the command of the explorer's example that reproduces it.

use crate::changing;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use changing::judges::{check_recovered, kernel_recovers};
use changing::target::{Way, XfsTarget};
use changing::{FILLING, SYNCING, TargetLayout};
use testkit::crash::{CrashTarget, Explorer, Judge, Options};
use testkit::operation::Mix;
use testkit::require;

fn options(mixes: Vec<Mix>) -> Options {
    Options { mixes, ..Options::default() }
}

/// Explores with xfs_repair as a judge of the recovered images, and sometimes the kernel, which recovers itself.
fn assert_survives(target: &dyn CrashTarget, options: Options, states: u64) {
    let (ours, theirs) = (check_recovered(1), kernel_recovers(8));
    let judges: [&dyn Judge; 2] = [&ours, &theirs];
    testkit::assert_survives(target, &judges, options, states);
}

/// Explores images whose log may wrap around.
fn assert_worn_survives(layout: TargetLayout, states: u64) {
    let options = options(vec![Mix::METADATA, Mix::ALL, SYNCING]);
    assert_survives(&XfsTarget::worn(layout), options, states);
}

/// Asserts that an error of a target is detected.
fn assert_found_out(target: &dyn CrashTarget, mixes: Vec<Mix>) {
    let report = testkit::explore(target, &[], options(mixes), 400);
    assert!(report.failures.len() >= 5, "{} failures", report.failures.len());
}

#[test]
fn metadata_and_data_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    assert_worn_survives(TargetLayout::DEFAULT, 500);
}

#[test]
fn discarded_space_is_never_needed_after_a_crash() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let mix = Mix { trims: true, sync: 40, data: 60, ..Mix::ALL };
    for layout in [TargetLayout::DEFAULT, TargetLayout::SMALL_BLOCKS] {
        assert_survives(&XfsTarget::worn(layout), options(vec![mix]), 300);
    }
}

/// Operations are small enough for one transaction each: up to four units are shared at once, and the log is large.
#[test]
fn shared_blocks_survive_a_crash_anywhere() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let mix = Mix { clone_units_max: 4, write_len_max: 12_000, sync: 10, ..Mix::CLONES };
    let exchanging = Mix { exchanges: true, ..mix };
    for mkfs in ["-d agcount=2 -l size=64m", "-d agcount=2 -l size=64m -m rmapbt=0"] {
        let layout = TargetLayout { size: 256 << 20, mkfs: Some(mkfs), ..TargetLayout::DEFAULT };
        let (ours, theirs) = (check_recovered(1), kernel_recovers(3));
        let judges: [&dyn Judge; 2] = [&ours, &theirs];
        let target = XfsTarget::in_place(layout);
        testkit::assert_survives(&target, &judges, options(vec![mix, exchanging]), 250);
    }
}

#[test]
fn checkpoints_by_several_threads_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let threads = NonZeroUsize::new(4);
    for layout in [TargetLayout::DEFAULT, TargetLayout::SMALL_BLOCKS] {
        let options = options(vec![Mix::METADATA, Mix::ALL, SYNCING]);
        assert_survives(&XfsTarget::worn(layout).by_threads(threads), options, 250);
    }
    let options = Options { warm_steps_max: 1_500, ..options(vec![FILLING]) };
    let target = XfsTarget::unhurried(TargetLayout::SMALL_LOG).by_threads(threads);
    assert_survives(&target, options, 100);
}

#[test]
fn small_blocks_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    assert_worn_survives(TargetLayout::SMALL_BLOCKS, 250);
}

/// Asserts that a run that once failed survives crashes in some states.
fn assert_run_survives(target: &dyn CrashTarget, options: Options, seed: u64, states: u64) {
    let (ours, theirs) = (check_recovered(1), kernel_recovers(8));
    let judges: [&dyn Judge; 2] = [&ours, &theirs];
    let explorer = Explorer::new(target, &judges, options);
    let report = explorer.explore(seed, states, 1, &|_, _| ControlFlow::Continue(()));
    let what: Vec<_> = report.failures.iter().map(|failure| &failure.what).collect();
    assert!(what.is_empty(), "{what:?}");
}

/// In this run, within one checkpoint, a block of attributes is freed and becomes part of a directory block of several
/// blocks. A replay must not restore the attributes in it.
#[test]
fn a_block_that_becomes_part_of_a_larger_one_survives_a_crash() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let target = XfsTarget::worn(TargetLayout::SMALL_BLOCKS);
    let options = options(vec![Mix::METADATA, Mix::ALL, SYNCING]);
    assert_run_survives(&target, options, 1005, 100);
}

/// In this run, within one checkpoint, a directory block of several blocks is freed. Most of it becomes part of another
/// one that starts before it. A replay must not restore the first one.
#[test]
fn a_larger_block_that_becomes_part_of_another_survives_a_crash() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let target = XfsTarget::unhurried(TargetLayout::SMALL_LOG);
    let options = Options { warm_steps_max: 1_500, ..options(vec![FILLING]) };
    assert_run_survives(&target, options, 1038, 20);
}

#[test]
fn old_features_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    assert_worn_survives(TargetLayout::PLAIN, 250);
}

#[test]
fn other_shapes_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    for layout in
        [TargetLayout::LARGE_DIR_BLOCKS, TargetLayout::LARGE_INODES, TargetLayout::BUFFERED]
    {
        assert_worn_survives(layout, 100);
    }
}

#[test]
fn images_of_mkfs_survive_a_crash_anywhere() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for layout in [TargetLayout::MKFS, TargetLayout::MKFS_SMALL_BLOCKS, TargetLayout::MKFS_PLAIN] {
        assert_worn_survives(layout, 150);
    }
}

/// Blocks are written back only when the log is full.
#[test]
fn a_log_that_gets_full_survives_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let options = Options { warm_steps_max: 1_500, ..options(vec![FILLING]) };
    assert_survives(&XfsTarget::unhurried(TargetLayout::SMALL_LOG), options, 150);
}

/// Other implementations do not open images with such logs.
#[test]
fn logs_that_start_over_again_and_again_survive_a_crash_anywhere() {
    let target = XfsTarget::in_place(TargetLayout::TINY_LOG);
    testkit::assert_survives(&target, &[], options(vec![SYNCING, Mix::ALL]), 350);
}

#[test]
fn the_kernel_recovers_what_a_crash_left() {
    require!(Mount("xfs"), Tool("xfs_repair"));
    let kernel = kernel_recovers(1);
    for layout in [TargetLayout::DEFAULT, TargetLayout::SMALL_BLOCKS, TargetLayout::MKFS] {
        let options = options(vec![Mix::ALL, SYNCING]);
        testkit::assert_survives(&XfsTarget::worn(layout), &[&kernel], options, 100);
    }
}

#[test]
fn a_file_system_that_does_not_flush_is_found_out() {
    let mut target = XfsTarget::in_place(TargetLayout::DEFAULT);
    target.swallows_flushes = true;
    assert_found_out(&target, vec![Mix::METADATA, Mix::ALL]);
}

#[test]
fn a_file_system_without_a_log_is_found_out() {
    let target = XfsTarget::with_images(
        TargetLayout::DEFAULT,
        Way::Unlogged,
        vec![TargetLayout::DEFAULT.make()],
    );
    assert_found_out(&target, vec![Mix::METADATA]);
}
