//! Random operations on XFS and on the reference model, with one thread and with several: the same
//! answers, the same tree at the end, and nothing for xfs_repair or the kernel to object to.

use crate::changing;

use std::sync::Arc;

use blockdev::MemoryDevice;
use changing::kernel::assert_kernel_agrees;
use changing::{Layout, XfsTarget};
use oracle::require;
use workload::operation::Mix;
use workload::trial::{one_thread, several_threads};

/// Many names in few directories, so that these get long.
const LARGE_DIRECTORIES: Mix =
    Mix { names: 80, names_per_directory: 400, depth_max: 1, ..Mix::ALL };

/// Only names.
const NAMES: Mix = Mix { data: 0, attributes: 0, ..Mix::ALL };

fn run(layout: Layout, mix: Mix, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    one_thread(&XfsTarget::new(layout).trial(), mix, seed, steps)
}

fn run_threads(layout: Layout, threads: usize, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    several_threads(&XfsTarget::new(layout).trial(), threads, seed, steps)
}

#[test]
fn names_do_as_the_model_does() {
    require!(Tool("xfs_repair"));
    for seed in 0..3 {
        run(Layout::DEFAULT, NAMES, seed, 1_500);
        run(Layout::PLAIN, NAMES, seed, 1_500);
    }
}

#[test]
fn one_thread_does_as_the_model_does() {
    require!(Tool("xfs_repair"));
    for seed in 0..4 {
        run(Layout::DEFAULT, Mix::ALL, seed, 1_000);
    }
}

#[test]
fn other_shapes_and_old_features_do_as_the_model_does() {
    require!(Tool("xfs_repair"));
    for seed in 100..102 {
        for layout in [
            Layout::SMALL_BLOCKS,
            Layout::PLAIN,
            Layout::LARGE_INODES,
            Layout::LARGE_DIR_BLOCKS,
            Layout::MANY_GROUPS,
            Layout::LARGE_BLOCKS,
            Layout { features: "+ascii-ci,-rmapbt", ..Layout::DEFAULT },
        ] {
            run(layout, Mix::ALL, seed, 800);
        }
    }
}

#[test]
fn large_directories_do_as_the_model_does() {
    require!(Tool("xfs_repair"));
    for (layout, seed) in
        [(Layout::SMALL_BLOCKS, 200), (Layout::DEFAULT, 201), (Layout::LARGE_DIR_BLOCKS, 202)]
    {
        run(layout, LARGE_DIRECTORIES, seed, 2_500);
    }
    // Long enough that the hash index has several leaves, and names wait for them.
    let longer = Mix { names_per_directory: 2_000, ..LARGE_DIRECTORIES };
    for seed in 203..205 {
        run(Layout::BUFFERED, longer, seed, 5_000);
    }
}

#[test]
fn the_kernel_shows_what_random_operations_left() {
    require!(Mount("xfs"), Tool("xfs_repair"));
    for seed in 300..302 {
        assert_kernel_agrees(&run(Layout::DEFAULT, Mix::ALL, seed, 700));
        assert_kernel_agrees(&run(Layout::SMALL_BLOCKS, LARGE_DIRECTORIES, seed, 700));
        assert_kernel_agrees(&run(Layout::PLAIN, Mix::ALL, seed, 700));
    }
}

#[test]
fn several_threads_do_as_their_models_do() {
    require!(Tool("xfs_repair"));
    for (seed, threads) in [(1, 2), (2, 4), (3, 8)] {
        run_threads(Layout::MANY_GROUPS, threads, seed, 250);
    }
    run_threads(Layout { size: 128 * changing::MIB, ..Layout::SMALL_BLOCKS }, 4, 4, 250);
}

#[test]
fn the_kernel_shows_what_several_threads_left() {
    require!(Mount("xfs"), Tool("xfs_repair"));
    assert_kernel_agrees(&run_threads(Layout::MANY_GROUPS, 4, 77, 250));
}
