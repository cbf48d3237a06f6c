//! Crashes at many moments of random runs: what recovery finds is what the model allows, and e2fsck
//! and the kernel recover the same. The rules are in `workload::crash`.
//!
//! A failure prints what reproduces it with the explorer's example.

use crate::changing;

use std::ops::ControlFlow;
use std::time::Duration;

use changing::Layout;
use changing::crashing::Ext4Target;
use changing::judges::{CheckRecovers, check_recovered, kernel_recovers};
use oracle::require;
use workload::crash::{Explorer, Judge, Options, Report, Target};
use workload::operation::Mix;
use workload::trial::Watchdog;

const LIMIT: Duration = Duration::from_secs(1800);
const THREADS: usize = 2;

fn explore(target: &dyn Target, judges: &[&dyn Judge], mixes: Vec<Mix>, states: u64) -> Report {
    let _watchdog = Watchdog::new(LIMIT, format!("{states} crash states"));
    let explorer = Explorer::new(target, judges, Options { mixes, ..Options::default() });
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

#[test]
fn metadata_and_data_survive_a_crash_anywhere() {
    require!(Tool("e2fsck"));
    let (ours, theirs) = (check_recovered(1), CheckRecovers::new(4));
    let target = Ext4Target::new(Layout::DEFAULT);
    let report = explore(&target, &[&ours, &theirs], vec![Mix::METADATA, Mix::ALL], 1_000);
    assert_sound(&report, 1_000);
}

#[test]
fn small_blocks_survive_a_crash_anywhere() {
    require!(Tool("e2fsck"));
    let (ours, theirs) = (check_recovered(1), CheckRecovers::new(4));
    let target = Ext4Target::new(Layout::SMALL_BLOCKS);
    let report = explore(&target, &[&ours, &theirs], vec![Mix::METADATA, Mix::ALL], 500);
    assert_sound(&report, 500);
}

#[test]
fn old_features_survive_a_crash_anywhere() {
    require!(Tool("e2fsck"));
    let (ours, theirs) = (check_recovered(1), CheckRecovers::new(4));
    let judges: [&dyn Judge; 2] = [&ours, &theirs];
    let report = explore(&Ext4Target::new(Layout::PLAIN), &judges, vec![Mix::ALL], 250);
    assert_sound(&report, 250);
    let mix = Mix { preallocates: false, ..Mix::ALL };
    let report = explore(&Ext4Target::new(Layout::BLOCK_MAPS), &judges, vec![mix], 250);
    assert_sound(&report, 250);
}

#[test]
fn clusters_survive_a_crash_anywhere() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let (ours, theirs) = (check_recovered(1), CheckRecovers::new(4));
    let small_blocks = Layout { block_size: 1024, ..Layout::CLUSTERS };
    for layout in [Layout::CLUSTERS, small_blocks] {
        let mixes = vec![Mix::METADATA, Mix::ALL];
        let report = explore(&Ext4Target::new(layout), &[&ours, &theirs], mixes, 300);
        assert_sound(&report, 300);
    }
}

#[test]
fn what_is_given_back_to_the_device_is_missed_by_no_crash() {
    require!(Tool("e2fsck"));
    let (ours, theirs) = (check_recovered(1), CheckRecovers::new(4));
    let mix = Mix { trims: true, sync: 40, data: 60, ..Mix::ALL };
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS] {
        let report = explore(&Ext4Target::new(layout), &[&ours, &theirs], vec![mix], 300);
        assert_sound(&report, 300);
    }
}

#[test]
fn the_kernel_recovers_what_a_crash_left() {
    require!(Mount("ext4"), Tool("mke2fs"), Tool("e2fsck"));
    let kernel = kernel_recovers(4);
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS, Layout::CLUSTERS] {
        let report = explore(&Ext4Target::new(layout), &[&kernel], vec![Mix::ALL], 100);
        assert_sound(&report, 100);
    }
}

#[test]
fn a_file_system_that_does_not_flush_is_found_out() {
    let mut target = Ext4Target::new(Layout::DEFAULT);
    target.swallows_flushes = true;
    let report = explore(&target, &[], vec![Mix::METADATA, Mix::ALL], 400);
    assert!(report.failures.len() >= 5, "{} failures", report.failures.len());
}

#[test]
fn a_file_system_without_a_journal_is_found_out() {
    let target = Ext4Target::new(Layout::NO_JOURNAL);
    let report = explore(&target, &[], vec![Mix::METADATA], 400);
    assert!(report.failures.len() >= 5, "{} failures", report.failures.len());
}
