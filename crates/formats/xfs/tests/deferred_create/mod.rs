//! Deferred creates: files that wait in memory before they are entered into their directory.

mod random;

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::trial::waiting::{self, MayWait, Order, WaitingTrial};
use testkit::{effort, require};
use xfs::OpenOptions;

use crate::changing::target::{Open, Way};
use crate::changing::{MIB, TargetLayout, assert_clean};

/// Layouts in which files may wait.
const SHAPES: [TargetLayout; 4] = [
    TargetLayout::DEFAULT,
    TargetLayout::LARGE_INODES,
    TargetLayout::MANY_GROUPS,
    TargetLayout {
        features: "-parent,-exchange,-rmapbt,-sparse,-nrext64,-bigtime",
        ..TargetLayout::DEFAULT
    },
];

/// A log that a few hundred files fill, and room for a large directory.
const LARGE_DIRECTORY: TargetLayout =
    TargetLayout { size: 128 * MIB, features: SHAPES[3].features, ..TargetLayout::TINY_LOG };

impl MayWait for Open {
    fn files_deferred(&self) -> usize {
        self.0.files_deferred()
    }
}

fn run(layout: TargetLayout, trial: impl FnOnce(&WaitingTrial<'_>)) {
    run_checked(layout, &|device| assert_clean(device), trial);
}

/// Runs a trial on images with a log that others do not open.
fn run_with_tiny_log(trial: impl FnOnce(&WaitingTrial<'_>)) {
    run_checked(TargetLayout::TINY_LOG, &|_| (), trial);
}

fn run_checked(
    layout: TargetLayout,
    check: &dyn Fn(&MemoryDevice),
    trial: impl FnOnce(&WaitingTrial<'_>),
) {
    let (name, make) = (format!("{layout:?}"), || layout.make());
    let open = |device: Arc<dyn BlockDevice>, cache_bytes, policy| {
        let options = OpenOptions { cache_bytes, defer_creates: policy, ..OpenOptions::default() };
        let fs = layout.open_in_place(device, &options)?;
        Ok(Box::new(Open(fs, Way::InPlace)) as Box<dyn MayWait>)
    };
    trial(&WaitingTrial { name: &name, make: &make, open: &open, check });
}

fn run_all(trial: impl Fn(&WaitingTrial<'_>)) {
    SHAPES.into_iter().for_each(|layout| run(layout, &trial));
}

#[test]
fn files_that_wait_are_seen() {
    require!(Tool("xfs_repair"));
    run_all(waiting::seen);
}

#[test]
fn counts_and_times_are_those_with_files_that_wait() {
    require!(Tool("xfs_repair"));
    run_all(|trial| waiting::counts(trial, false));
}

#[test]
fn accessing_a_waiting_file_applies_only_that_file() {
    require!(Tool("xfs_repair"));
    run_all(waiting::one_file);
}

#[test]
fn durable_files_survive_a_crash() {
    require!(Tool("xfs_repair"));
    run_all(waiting::syncs);
    run_all(waiting::datasyncs);
    run_all(waiting::times_of_datasyncs);
}

#[test]
fn few_files_wait_at_a_time() {
    require!(Tool("xfs_repair"));
    run_all(waiting::few_at_a_time);
}

#[test]
fn times_of_a_directory_are_those_of_what_was_done_last() {
    require!(Tool("xfs_repair"));
    run_all(waiting::times);
    run_all(waiting::moves);
}

#[test]
fn a_directory_with_files_that_wait_is_not_empty() {
    require!(Tool("xfs_repair"));
    run_all(waiting::not_empty);
}

#[test]
fn names_created_before_deferral_are_known() {
    require!(Tool("xfs_repair"));
    run_all(waiting::shrunk);
}

/// No other operation gets a reserved inode, and all inodes can be used.
#[test]
fn every_inode_can_be_had_once() {
    require!(Tool("xfs_repair"));
    run_all(waiting::inodes_once);
}

#[test]
fn files_come_in_any_order_after_a_crash_and_each_wholly() {
    require!(Tool("xfs_repair"));
    run_with_tiny_log(waiting::crashes);
}

#[test]
fn changes_become_durable_in_their_order_by_default() {
    let policy = OpenOptions::default().defer_creates;
    run_checked(LARGE_DIRECTORY, &|_| (), |trial| {
        assert_eq!(waiting::order(trial, policy), Order::Kept);
    });
}

/// The option's documentation promises this weaker order.
#[test]
fn with_deferred_creates_only_files_of_large_directories_come_out_of_order() {
    let policy = Some(OpenOptions::DEFER_LARGE);
    run_checked(LARGE_DIRECTORY, &|_| (), |trial| {
        let order = waiting::order(trial, policy);
        assert!(matches!(order, Order::Broken(_)), "no file was deferred over a crash");
    });
}

#[test]
fn a_full_image_refuses_files_and_loses_none() {
    require!(Tool("xfs_repair"));
    for layout in [TargetLayout::DEFAULT, TargetLayout::MANY_GROUPS] {
        run(layout, |trial| waiting::full_image(trial, layout.block_size as usize, 150));
    }
}

/// Files that cannot become durable are refused, and pending ones give an error.
#[test]
fn a_checkpoint_that_fails_ends_waiting() {
    require!(Tool("xfs_repair"));
    run_with_tiny_log(waiting::failing_checkpoints);
}

#[test]
fn files_wait_while_others_read_sync_remove_and_rename() {
    require!(Tool("xfs_repair"));
    let files = effort(1_000, 3_000, 40_000);
    for layout in [TargetLayout::DEFAULT, TargetLayout::MANY_GROUPS] {
        let layout = TargetLayout { size: 256 * MIB, ..layout };
        run(layout, |trial| waiting::threads(trial, files));
    }
}
