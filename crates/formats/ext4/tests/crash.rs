//! Crashes at many points of random runs: recovery must yield a state that the model allows, and e2fsck and the kernel
//! must recover the same. The rules are in `testkit::crash`.
//!
//! A failure prints the arguments that reproduce it with the explorer's example.

use crate::changing;

use std::num::NonZeroUsize;

use changing::ImageParameters;
use changing::crashing::Ext4Target;
use changing::judges::{CheckRecovers, check_recovered, kernel_recovers};
use testkit::crash::{CrashTarget, Judge, Options};
use testkit::operation::Mix;
use testkit::require;

/// Asserts that a target survives crashes. The check judges each recovered image, and sometimes recovers the image
/// itself.
fn assert_survives(target: &dyn CrashTarget, mixes: Vec<Mix>, states: u64) {
    let (ours, theirs) = (check_recovered(1), CheckRecovers::new(4));
    let judges: [&dyn Judge; 2] = [&ours, &theirs];
    testkit::assert_survives(target, &judges, Options { mixes, ..Options::default() }, states);
}

/// Asserts that a deliberate fault of a target is detected.
fn assert_found_out(target: &dyn CrashTarget, mixes: Vec<Mix>) {
    let report = testkit::explore(target, &[], Options { mixes, ..Options::default() }, 400);
    assert!(report.failures.len() >= 5, "{} failures", report.failures.len());
}

fn any() -> Vec<Mix> {
    vec![Mix::METADATA, Mix::ALL]
}

#[test]
fn metadata_and_data_survive_a_crash_anywhere() {
    require!(Tool("e2fsck"));
    assert_survives(&Ext4Target::new(ImageParameters::DEFAULT), any(), 1_000);
}

#[test]
fn checkpoints_by_several_threads_survive_a_crash_anywhere() {
    require!(Tool("e2fsck"));
    let target = Ext4Target::new(ImageParameters::DEFAULT).by_threads(NonZeroUsize::new(4));
    assert_survives(&target, any(), 500);
}

#[test]
fn small_blocks_survive_a_crash_anywhere() {
    require!(Tool("e2fsck"));
    assert_survives(&Ext4Target::new(ImageParameters::SMALL_BLOCKS), any(), 500);
}

#[test]
fn old_features_survive_a_crash_anywhere() {
    require!(Tool("e2fsck"));
    assert_survives(&Ext4Target::new(ImageParameters::PLAIN), vec![Mix::ALL], 250);
    assert_survives(&Ext4Target::new(ImageParameters::BLOCK_MAPS), vec![Mix::ALL], 250);
}

#[test]
fn clusters_survive_a_crash_anywhere() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let small_blocks = ImageParameters { block_size: 1024, ..ImageParameters::CLUSTERS };
    for layout in [ImageParameters::CLUSTERS, small_blocks] {
        assert_survives(&Ext4Target::new(layout), any(), 300);
    }
}

#[test]
fn discarded_space_is_never_needed_after_a_crash() {
    require!(Tool("e2fsck"));
    let mix = Mix { trims: true, sync: 40, data: 60, ..Mix::ALL };
    for layout in [ImageParameters::DEFAULT, ImageParameters::SMALL_BLOCKS] {
        assert_survives(&Ext4Target::new(layout), vec![mix], 300);
    }
}

#[test]
fn the_kernel_recovers_what_a_crash_left() {
    require!(Mount("ext4"), Tool("mke2fs"), Tool("e2fsck"));
    let kernel = kernel_recovers(4);
    for layout in
        [ImageParameters::DEFAULT, ImageParameters::SMALL_BLOCKS, ImageParameters::CLUSTERS]
    {
        let options = Options { mixes: vec![Mix::ALL], ..Options::default() };
        testkit::assert_survives(&Ext4Target::new(layout), &[&kernel], options, 100);
    }
}

#[test]
fn a_file_system_that_does_not_flush_is_found_out() {
    let mut target = Ext4Target::new(ImageParameters::DEFAULT);
    target.swallows_flushes = true;
    assert_found_out(&target, any());
}

#[test]
fn a_file_system_without_a_journal_is_found_out() {
    assert_found_out(&Ext4Target::new(ImageParameters::NO_JOURNAL), vec![Mix::METADATA]);
}
