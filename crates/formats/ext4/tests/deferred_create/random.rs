//! Random trials and crashes with files that wait as early as possible.

use ext4::DeferPolicy;
use testkit::crash::{Judge, Options};
use testkit::operation::Mix;
use testkit::trial::{
    fail_writes, freeing_when_full, many_threads, one_thread, random_when_full, several_threads,
};
use testkit::{effort, require};

use super::{ROOMY, SOON};
use crate::changing::crashing::Ext4Target;
use crate::changing::judges::{CheckRecovers, check_recovered};
use crate::changing::{ImageParameters, MIB};

const LARGE_DIRECTORIES: Mix =
    Mix { names: 80, names_per_directory: 400, depth_max: 1, ..Mix::ALL };

fn waiting(layout: ImageParameters) -> Ext4Target {
    let mut target = Ext4Target::new(layout);
    target.defer_creates = Some(SOON);
    target
}

#[test]
fn large_directories_do_as_the_model_does() {
    require!(Tool("e2fsck"));
    for seed in 0..effort(1, 2, 50) {
        for layout in [
            ImageParameters::SMALL_BLOCKS,
            ImageParameters::DEFAULT,
            ImageParameters::PLAIN,
            ImageParameters::BLOCK_MAPS,
        ] {
            let target = waiting(ImageParameters { inodes: 2_048, ..layout });
            one_thread(&target.trial(), LARGE_DIRECTORIES, 500 + seed, 2_000);
        }
    }
}

#[test]
fn several_threads_do_as_their_models_do() {
    require!(Tool("e2fsck"));
    for (seed, threads) in [(1, 2), (2, 4)] {
        for layout in [ImageParameters::DEFAULT, ImageParameters::SMALL_BLOCKS] {
            let target = waiting(ImageParameters { inodes: 2_048, size: 128 * MIB, ..layout });
            several_threads(&target.trial(), threads, seed, 250);
        }
    }
}

#[test]
fn many_threads_share_directories() {
    require!(Tool("e2fsck"));
    for shared in [true, false] {
        many_threads(&waiting(ImageParameters { size: 128 * MIB, ..ROOMY }).trial(), shared);
    }
}

#[test]
fn a_full_image_refuses_in_time() {
    require!(Tool("e2fsck"));
    for layout in [ImageParameters::DEFAULT, ImageParameters::SMALL_BLOCKS] {
        let roomy = ImageParameters { size: 64 * MIB, inodes: 1024, ..layout };
        freeing_when_full(&waiting(roomy).trial(), true);
        for seed in 0..effort(1, 2, 50) {
            random_when_full(&waiting(layout).trial(), seed, 1_500);
        }
    }
}

#[test]
fn a_device_that_fails_is_told_of() {
    require!(Tool("e2fsck"));
    fail_writes(&waiting(ImageParameters::SMALL_BLOCKS).trial());
}

/// Mostly names, so that directories get indexes.
const NAMES: Mix = Mix { data: 2, sync: 2, open: 3, names_per_directory: 300, ..LARGE_DIRECTORIES };

#[test]
fn a_crash_loses_files_that_wait_and_nothing_else() {
    require!(Tool("e2fsck"));
    for layout in [ImageParameters::SMALL_BLOCKS, ImageParameters::DEFAULT] {
        let (ours, theirs) = (check_recovered(1), CheckRecovers::new(4));
        let judges: [&dyn Judge; 2] = [&ours, &theirs];
        let options = Options {
            mixes: vec![NAMES],
            steps_per_run: 250,
            warm_steps_max: 400,
            ..Options::default()
        };
        let mut target = waiting(ImageParameters { inodes: 2_048, ..layout });
        // So few that a directory is applied in parts.
        target.defer_creates = Some(DeferPolicy { files_max: 3, ..SOON });
        testkit::assert_survives(&target, &judges, options, 400);
    }
}
