//! The trials and the model, with files that wait as soon as possible.

use testkit::crash::{Judge, Options};
use testkit::operation::Mix;
use testkit::trial::waiting::SOON;
use testkit::trial::{
    fail_writes, freeing_when_full, many_threads, one_thread, random_when_full, several_threads,
};
use testkit::{effort, require};
use xfs::DeferPolicy;

use super::SHAPES;
use crate::changing::judges::{check_recovered, kernel_recovers};
use crate::changing::{MIB, TargetLayout, XfsTarget};

const LARGE_DIRECTORIES: Mix =
    Mix { names: 80, names_per_directory: 400, depth_max: 1, ..Mix::ALL };

/// So few names that a directory repeatedly becomes large enough for deferred files, and too small.
const CHANGING_SIZE: Mix =
    Mix { data: 3, sync: 1, names: 90, names_per_directory: 60, depth_max: 0, ..Mix::ALL };

fn in_place(layout: TargetLayout) -> XfsTarget {
    XfsTarget::in_place(layout).deferring(SOON)
}

#[test]
fn large_directories_do_as_the_model_does() {
    require!(Tool("xfs_repair"));
    for seed in 0..effort(1, 2, 50) {
        for layout in SHAPES {
            one_thread(&in_place(layout).trial(), LARGE_DIRECTORIES, 500 + seed, 2_000);
            one_thread(&in_place(layout).trial(), CHANGING_SIZE, 600 + seed, 2_000);
        }
    }
}

#[test]
fn several_threads_do_as_their_models_do() {
    require!(Tool("xfs_repair"));
    for (seed, threads) in [(1, 2), (2, 4)] {
        for layout in [TargetLayout::DEFAULT, TargetLayout::MANY_GROUPS] {
            let target = in_place(TargetLayout { size: 128 * MIB, ..layout });
            several_threads(&target.trial(), threads, seed, 250);
        }
    }
}

#[test]
fn many_threads_share_directories() {
    require!(Tool("xfs_repair"));
    for shared in [true, false] {
        many_threads(
            &in_place(TargetLayout { size: 128 * MIB, ..TargetLayout::DEFAULT }).trial(),
            shared,
        );
    }
}

#[test]
fn a_full_image_refuses_in_time() {
    require!(Tool("xfs_repair"));
    for layout in [TargetLayout::DEFAULT, TargetLayout::LARGE_INODES] {
        freeing_when_full(&in_place(layout).trial(), true);
        for seed in 0..effort(1, 3, 50) {
            random_when_full(&in_place(layout).trial(), seed, 1_500);
        }
    }
}

#[test]
fn failures_are_told_of() {
    require!(Tool("xfs_repair"));
    fail_writes(&in_place(TargetLayout::DEFAULT).trial());
}

/// Almost only names, so that directories become large.
const NAMES: Mix = Mix { data: 2, sync: 2, open: 3, names_per_directory: 300, ..LARGE_DIRECTORIES };

#[test]
fn a_crash_loses_files_that_wait_and_nothing_else() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    for layout in [TargetLayout::MANY_GROUPS, TargetLayout::DEFAULT] {
        let (ours, theirs) = (check_recovered(1), kernel_recovers(4));
        let judges: [&dyn Judge; 2] = [&ours, &theirs];
        let options = Options {
            mixes: vec![NAMES],
            steps_per_run: 250,
            warm_steps_max: 400,
            ..Options::default()
        };
        // So few that parts of a directory are applied before others.
        let policy = DeferPolicy { files_max: 3, ..SOON };
        let target = XfsTarget::worn(layout).deferring(policy);
        testkit::assert_survives(&target, &judges, options, 400);
    }
}
