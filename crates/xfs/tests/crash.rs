//! Crashes at many moments of random runs that change XFS in place: what recovery finds is what the
//! model allows, xfs_repair has nothing to say about it, and the kernel recovers the same. The rules are
//! in `workload::crash`. The logs of most images start over during a run.
//!
//! A failure prints what reproduces it with the explorer's example.

use crate::changing;

use std::ops::ControlFlow;
use std::time::Duration;

use changing::judges::{check_recovered, kernel_recovers};
use changing::target::{Way, XfsTarget};
use changing::{FILLING, Layout, SYNCING};
use oracle::require;
use workload::crash::{Explorer, Judge, Options, Report, Target};
use workload::operation::Mix;
use workload::trial::Watchdog;

const LIMIT: Duration = Duration::from_secs(1800);
const THREADS: usize = 2;

fn explore(target: &dyn Target, judges: &[&dyn Judge], mixes: Vec<Mix>, states: u64) -> Report {
    explore_as(target, judges, Options { mixes, ..Options::default() }, states)
}

fn explore_as(target: &dyn Target, judges: &[&dyn Judge], options: Options, states: u64) -> Report {
    let _watchdog = Watchdog::new(LIMIT, format!("{states} crash states"));
    let explorer = Explorer::new(target, judges, options);
    // A few failures tell as much as all.
    explorer.explore(1, states, THREADS, &|_, failures| {
        if failures < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })
}

/// Asserts that so many states were seen and nothing is wrong with any.
#[track_caller]
fn assert_sound(report: &Report, states: u64) {
    for failure in &report.failures {
        let at = failure.state.map_or("in the run itself".into(), |n| format!("state {n}"));
        eprintln!("seed {}, {at}: {}\n", failure.seed, failure.what);
    }
    assert!(report.failures.is_empty(), "{} of {} states", report.failures.len(), report.states);
    assert!(report.states >= states && report.recrashed > 0);
    assert!(report.verdicts.iter().all(|(_, count)| *count > 0));
}

/// Explores a kind of image whose log may start over, with all judges.
fn assert_survives(layout: Layout, states: u64) {
    let (ours, theirs) = (check_recovered(1), kernel_recovers(8));
    let mixes = vec![Mix::METADATA, Mix::ALL, SYNCING];
    let report = explore(&XfsTarget::worn(layout), &[&ours, &theirs], mixes, states);
    assert_sound(&report, states);
}

#[test]
fn metadata_and_data_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    assert_survives(Layout::DEFAULT, 500);
}

#[test]
fn what_is_given_back_to_the_device_is_missed_by_no_crash() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let (ours, theirs) = (check_recovered(1), kernel_recovers(8));
    let mix = Mix { trims: true, sync: 40, data: 60, ..Mix::ALL };
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS] {
        let report = explore(&XfsTarget::worn(layout), &[&ours, &theirs], vec![mix], 300);
        assert_sound(&report, 300);
    }
}

#[test]
fn small_blocks_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    assert_survives(Layout::SMALL_BLOCKS, 250);
}

#[test]
fn old_features_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    assert_survives(Layout::PLAIN, 250);
}

#[test]
fn other_shapes_survive_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    for layout in [Layout::LARGE_DIR_BLOCKS, Layout::LARGE_INODES, Layout::BUFFERED] {
        assert_survives(layout, 100);
    }
}

#[test]
fn images_of_mkfs_survive_a_crash_anywhere() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for layout in [Layout::MKFS, Layout::MKFS_SMALL_BLOCKS, Layout::MKFS_PLAIN] {
        assert_survives(layout, 150);
    }
}

/// Blocks go home because the log gets full, and not before.
#[test]
fn a_log_that_gets_full_survives_a_crash_anywhere() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let (ours, theirs) = (check_recovered(1), kernel_recovers(8));
    let options = Options { mixes: vec![FILLING], warm_steps_max: 1_500, ..Options::default() };
    let target = XfsTarget::unhurried(Layout::SMALL_LOG);
    let report = explore_as(&target, &[&ours, &theirs], options, 150);
    assert_sound(&report, 150);
}

/// Only we open images with such logs.
#[test]
fn logs_that_start_over_again_and_again_survive_a_crash_anywhere() {
    let target = XfsTarget::in_place(Layout::TINY_LOG);
    let report = explore(&target, &[], vec![SYNCING, Mix::ALL], 350);
    assert_sound(&report, 350);
}

#[test]
fn the_kernel_recovers_what_a_crash_left() {
    require!(Mount("xfs"), Tool("xfs_repair"));
    let kernel = kernel_recovers(1);
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS, Layout::MKFS] {
        let mixes = vec![Mix::ALL, SYNCING];
        let report = explore(&XfsTarget::worn(layout), &[&kernel], mixes, 100);
        assert_sound(&report, 100);
    }
}

#[test]
fn a_file_system_that_does_not_flush_is_found_out() {
    let mut target = XfsTarget::in_place(Layout::DEFAULT);
    target.swallows_flushes = true;
    let report = explore(&target, &[], vec![Mix::METADATA, Mix::ALL], 400);
    assert!(report.failures.len() >= 5, "{} failures", report.failures.len());
}

#[test]
fn a_file_system_without_a_log_is_found_out() {
    let target = XfsTarget::with_images(Layout::DEFAULT, Way::Fresh, vec![Layout::DEFAULT.make()]);
    let report = explore(&target, &[], vec![Mix::METADATA], 400);
    assert!(report.failures.len() >= 5, "{} failures", report.failures.len());
}
