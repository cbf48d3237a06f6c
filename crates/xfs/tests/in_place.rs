//! What every format must do, on XFS images that are changed in place with their log: images made here
//! and by mkfs.xfs.

use crate::changing;

use std::sync::Arc;

use blockdev::MemoryDevice;
use changing::kernel::assert_kernel_agrees;
use changing::{Layout, MIB, XfsTarget};
use oracle::require;
use workload::crash::Target;
use workload::operation::Mix;
use workload::trial::{
    Trial, fail_allocations, fail_reads, fail_writes, freeing_when_full, many_threads, no_circle,
    one_thread, overwrites, random_when_full, refusals, rounds, several_threads, space_comes_back,
    taken, unnamed,
};

/// Many names in few directories, so that these get long.
const LARGE_DIRECTORIES: Mix =
    Mix { names: 80, names_per_directory: 400, depth_max: 1, ..Mix::ALL };

fn run(layout: Layout, mix: Mix, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    one_thread(&XfsTarget::in_place(layout).trial(), mix, seed, steps)
}

fn run_threads(layout: Layout, threads: usize, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    several_threads(&XfsTarget::in_place(layout).trial(), threads, seed, steps)
}

#[test]
fn one_thread_does_as_the_model_does() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    for seed in 0..3 {
        run(Layout::DEFAULT, Mix::ALL, seed, 1_000);
        run(Layout::MKFS, Mix::ALL, seed, 1_000);
    }
}

#[test]
fn other_shapes_and_old_features_do_as_the_model_does() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    for layout in [
        Layout::SMALL_BLOCKS,
        Layout::PLAIN,
        Layout::LARGE_INODES,
        Layout::LARGE_DIR_BLOCKS,
        Layout::MANY_GROUPS,
        Layout::LARGE_BLOCKS,
        Layout::MKFS_SMALL_BLOCKS,
        Layout::MKFS_PLAIN,
        Layout { features: "+ascii-ci,-rmapbt", ..Layout::DEFAULT },
    ] {
        run(layout, Mix::ALL, 100, 800);
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
    run(Layout::BUFFERED, longer, 203, 5_000);
}

#[test]
fn the_kernel_shows_what_random_operations_left() {
    require!(Mount("xfs"), Tool("xfs_repair"), Tool("mkfs.xfs"));
    assert_kernel_agrees(&run(Layout::MKFS, Mix::ALL, 300, 700));
    assert_kernel_agrees(&run(Layout::MKFS_SMALL_BLOCKS, LARGE_DIRECTORIES, 301, 700));
    assert_kernel_agrees(&run(Layout::PLAIN, Mix::ALL, 302, 700));
}

#[test]
fn several_threads_do_as_their_models_do() {
    require!(Mount("xfs"), Tool("xfs_repair"), Tool("mkfs.xfs"));
    for (seed, threads) in [(1, 2), (2, 4), (3, 8)] {
        assert_kernel_agrees(&run_threads(Layout::MANY_GROUPS, threads, seed, 250));
    }
    run_threads(Layout { size: 128 * MIB, ..Layout::SMALL_BLOCKS }, 4, 4, 250);
    run_threads(Layout { size: 128 * MIB, ..Layout::MKFS }, 4, 5, 250);
}

#[test]
fn threads_on_the_same_names() {
    require!(Tool("xfs_repair"));
    many_threads(&XfsTarget::in_place(Layout::SMALL_BLOCKS).trial(), true);
    many_threads(&XfsTarget::in_place(Layout::MANY_GROUPS).trial(), false);
    no_circle(&XfsTarget::in_place(Layout::DEFAULT).trial());
}

#[test]
fn what_is_refused_leaves_no_trace() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::DEFAULT, Layout::PLAIN] {
        let target = XfsTarget::in_place(layout);
        refusals(&target.trial());
        unnamed(&target.trial());
        taken(&target.trial());
    }
}

#[test]
fn a_failed_read_leaves_no_trace() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    fail_reads(&XfsTarget::in_place(Layout::MKFS).trial());
}

#[test]
fn a_failed_allocation_leaves_no_trace() {
    require!(Tool("xfs_repair"));
    fail_allocations(&XfsTarget::in_place(Layout::DEFAULT).trial());
}

#[test]
fn a_failed_allocation_leaves_no_trace_with_small_blocks() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    let layout = Layout { size: 32 * MIB, ..Layout::MKFS_SMALL_BLOCKS };
    fail_allocations(&XfsTarget::in_place(layout).trial());
}

#[test]
fn nothing_is_written_after_a_failed_write() {
    require!(Tool("xfs_repair"));
    fail_writes(&XfsTarget::in_place(Layout::DEFAULT).trial());
}

#[test]
fn writing_over_data_changes_nothing_else() {
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS, Layout::PLAIN] {
        overwrites(&XfsTarget::in_place(layout).trial());
    }
}

#[test]
fn space_that_was_given_back_is_there_again() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::DEFAULT, Layout::PLAIN, Layout::SMALL_BLOCKS] {
        space_comes_back(&XfsTarget::in_place(layout).trial());
    }
}

/// However full it is, and whatever its map and the trees of its groups need meanwhile.
#[test]
fn freeing_works_when_full() {
    require!(Tool("xfs_repair"));
    for layout in [
        Layout::DEFAULT,
        Layout::SMALL_BLOCKS,
        Layout::PLAIN,
        Layout::MANY_GROUPS,
        Layout::SMALL_LOG,
    ] {
        freeing_when_full(&XfsTarget::in_place(layout).trial(), true);
    }
    // Only we open images with such logs.
    let target = XfsTarget::in_place(Layout::TINY_LOG);
    freeing_when_full(&Trial { check: &|_| {}, ..target.trial() }, true);
}

#[test]
fn random_changes_of_a_full_image_free_what_they_should() {
    require!(Tool("xfs_repair"));
    for layout in [Layout::DEFAULT, Layout::SMALL_BLOCKS, Layout::PLAIN, Layout::SMALL_LOG] {
        for seed in 0..3 {
            random_when_full(&XfsTarget::in_place(layout).trial(), seed, 1_500);
        }
    }
}

/// The smallest logs that kernels take, whose records are rounded to sectors and to stripe units.
#[test]
fn small_durable_changes_go_round_the_log_and_round_again() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    let of_mkfs = |options| Layout { mkfs: Some(options), ..Layout::DEFAULT };
    for layout in [
        Layout::SMALL_LOG,
        of_mkfs("-s size=4096 -l size=10m"),
        of_mkfs("-l su=32768,size=10m"),
        of_mkfs("-l su=262144,size=16128k"),
    ] {
        let target = XfsTarget::in_place(layout);
        let log = Layout::log_of(&target.make(0).unwrap());
        rounds(&target.trial(), &[log]);
    }
}

/// Logs smaller than others open, down to where one operation may take most of it.
#[test]
fn small_durable_changes_go_round_tiny_logs_and_round_again() {
    let tiny = |layout, kib: u32| Layout { log_bytes: Some(kib << 10), ..layout };
    for layout in [
        tiny(Layout::DEFAULT, 512),
        tiny(Layout::DEFAULT, 388),
        tiny(Layout::SMALL_BLOCKS, 257),
        tiny(Layout::LARGE_DIR_BLOCKS, 514),
        tiny(Layout::LARGE_BLOCKS, 4 << 10),
    ] {
        let target = XfsTarget::in_place(layout);
        let log = Layout::log_of(&target.make(0).unwrap());
        // xfs_repair takes no such log.
        rounds(&Trial { check: &|_| (), ..target.trial() }, &[log]);
    }
}
