//! Requirements of all formats, checked with the reference model, xfs_repair and the kernel: on images changed in place
//! with their log, and on new ones filled without a log, as builds do.

use crate::changing;

use std::sync::Arc;

use changing::kernel::assert_kernel_agrees;
use changing::{MIB, TargetLayout, XfsTarget};
use disk::MemoryDevice;
use testkit::crash::CrashTarget;
use testkit::operation::Mix;
use testkit::trial::{
    Trial, fail_allocations, fail_reads, fail_writes, freeing_when_full, many_threads, no_circle,
    one_thread, overwrites, random_when_full, refusals, rounds, scattered_writes, several_threads,
    space_comes_back, taken, unnamed, writes_out_of_order,
};
use testkit::{effort, require};

/// Mode in which images of a layout are opened for changes.
type Way = fn(TargetLayout) -> XfsTarget;
const UNLOGGED: Way = XfsTarget::unlogged;
const IN_PLACE: Way = XfsTarget::in_place;
const BOTH: [Way; 2] = [UNLOGGED, IN_PLACE];

/// Many names in few directories, so that these become large.
const LARGE_DIRECTORIES: Mix =
    Mix { names: 80, names_per_directory: 400, depth_max: 1, ..Mix::ALL };

/// Only operations on names.
const NAMES: Mix = Mix { data: 0, attributes: 0, ..Mix::ALL };

/// All variants of the layout that mkfs supports here.
const SHAPES: [TargetLayout; 7] = [
    TargetLayout::SMALL_BLOCKS,
    TargetLayout::PLAIN,
    TargetLayout::LARGE_INODES,
    TargetLayout::LARGE_DIR_BLOCKS,
    TargetLayout::MANY_GROUPS,
    TargetLayout::LARGE_BLOCKS,
    TargetLayout { features: "+ascii-ci,-rmapbt", ..TargetLayout::DEFAULT },
];

fn run(way: Way, layout: TargetLayout, mix: Mix, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    one_thread(&way(layout).trial(), mix, seed, steps)
}

fn run_threads(way: Way, layout: TargetLayout, threads: usize, seed: u64) -> Arc<MemoryDevice> {
    several_threads(&way(layout).trial(), threads, seed, 250)
}

#[test]
fn one_thread_does_as_the_model_does() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    for seed in 0..effort(1, 4, 100) {
        for way in BOTH {
            run(way, TargetLayout::DEFAULT, Mix::ALL, seed, 1_000);
        }
        run(IN_PLACE, TargetLayout::MKFS, Mix::ALL, seed, 1_000);
    }
}

#[test]
fn names_do_as_the_model_does() {
    require!(Tool("xfs_repair"));
    for seed in 0..effort(1, 3, 100) {
        run(UNLOGGED, TargetLayout::DEFAULT, NAMES, seed, 1_500);
        run(UNLOGGED, TargetLayout::PLAIN, NAMES, seed, 1_500);
    }
}

#[test]
fn other_shapes_and_old_features_do_as_the_model_does() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    for seed in 100..effort(101, 102, 150) {
        for layout in SHAPES {
            run(UNLOGGED, layout, Mix::ALL, seed, 800);
        }
    }
    for seed in 100..effort(101, 101, 150) {
        for layout in SHAPES {
            run(IN_PLACE, layout, Mix::ALL, seed, 800);
        }
        run(IN_PLACE, TargetLayout::MKFS_SMALL_BLOCKS, Mix::ALL, seed, 800);
        run(IN_PLACE, TargetLayout::MKFS_PLAIN, Mix::ALL, seed, 800);
    }
}

#[test]
fn large_directories_do_as_the_model_does() {
    require!(Tool("xfs_repair"));
    for way in BOTH {
        for (layout, seed) in [
            (TargetLayout::SMALL_BLOCKS, 200),
            (TargetLayout::DEFAULT, 201),
            (TargetLayout::LARGE_DIR_BLOCKS, 202),
        ] {
            run(way, layout, LARGE_DIRECTORIES, seed, 2_500);
        }
    }
    let folding = TargetLayout { features: "+ascii-ci", ..TargetLayout::SMALL_BLOCKS };
    for way in BOTH {
        run(way, folding, LARGE_DIRECTORIES, 206, 2_000);
    }
    run_threads(IN_PLACE, TargetLayout { size: 128 * MIB, ..folding }, 3, 207);
    // Long enough that the hash index has several leaves with buffered names.
    let longer = Mix { names_per_directory: 2_000, ..LARGE_DIRECTORIES };
    for seed in 203..effort(204, 205, 250) {
        run(UNLOGGED, TargetLayout::BUFFERED, longer, seed, 5_000);
    }
    run(IN_PLACE, TargetLayout::BUFFERED, longer, 203, 5_000);
}

#[test]
fn the_kernel_shows_what_random_operations_left() {
    require!(Mount("xfs"), Tool("xfs_repair"), Tool("mkfs.xfs"));
    for seed in 300..effort(301, 302, 350) {
        assert_kernel_agrees(&run(UNLOGGED, TargetLayout::DEFAULT, Mix::ALL, seed, 700));
        assert_kernel_agrees(&run(
            UNLOGGED,
            TargetLayout::SMALL_BLOCKS,
            LARGE_DIRECTORIES,
            seed,
            700,
        ));
        assert_kernel_agrees(&run(UNLOGGED, TargetLayout::PLAIN, Mix::ALL, seed, 700));
    }
    assert_kernel_agrees(&run(IN_PLACE, TargetLayout::MKFS, Mix::ALL, 300, 700));
    assert_kernel_agrees(&run(
        IN_PLACE,
        TargetLayout::MKFS_SMALL_BLOCKS,
        LARGE_DIRECTORIES,
        301,
        700,
    ));
    assert_kernel_agrees(&run(IN_PLACE, TargetLayout::PLAIN, Mix::ALL, 302, 700));
}

#[test]
fn several_threads_do_as_their_models_do() {
    require!(Mount("xfs"), Tool("xfs_repair"), Tool("mkfs.xfs"));
    let large = |layout| TargetLayout { size: 128 * MIB, ..layout };
    for way in BOTH {
        for (seed, threads) in [(1, 2), (2, 4), (3, 8)] {
            assert_kernel_agrees(&run_threads(way, TargetLayout::MANY_GROUPS, threads, seed));
        }
        run_threads(way, large(TargetLayout::SMALL_BLOCKS), 4, 4);
    }
    run_threads(IN_PLACE, large(TargetLayout::MKFS), 4, 5);
    assert_kernel_agrees(&run_threads(UNLOGGED, TargetLayout::MANY_GROUPS, 4, 77));
}

#[test]
fn threads_on_the_same_names() {
    require!(Tool("xfs_repair"));
    for way in BOTH {
        many_threads(&way(TargetLayout::SMALL_BLOCKS).trial(), true);
        many_threads(&way(TargetLayout::MANY_GROUPS).trial(), false);
        no_circle(&way(TargetLayout::DEFAULT).trial());
    }
    many_threads(&UNLOGGED(TargetLayout::MANY_GROUPS).trial(), true);
}

#[test]
fn refused_operations_change_nothing() {
    require!(Tool("xfs_repair"));
    for way in BOTH {
        for layout in [TargetLayout::DEFAULT, TargetLayout::PLAIN] {
            let target = way(layout);
            refusals(&target.trial());
            unnamed(&target.trial());
        }
    }
}

#[test]
fn a_taken_name_comes_before_a_full_file_system() {
    require!(Tool("xfs_repair"));
    for way in BOTH {
        for layout in [TargetLayout::DEFAULT, TargetLayout::PLAIN] {
            taken(&way(layout).trial());
        }
    }
    for layout in [TargetLayout::SMALL_BLOCKS, TargetLayout::BUFFERED] {
        taken(&UNLOGGED(layout).trial());
    }
}

#[test]
fn a_failed_read_leaves_no_trace() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    let all = [
        (UNLOGGED, TargetLayout::SMALL_BLOCKS),
        (IN_PLACE, TargetLayout::MKFS),
        (UNLOGGED, TargetLayout::DEFAULT),
    ];
    for (way, layout) in all.into_iter().take(effort(2, 3, 3)) {
        fail_reads(&way(layout).trial());
    }
}

#[test]
fn a_failed_allocation_leaves_no_trace() {
    require!(Tool("xfs_repair"));
    for way in [IN_PLACE, UNLOGGED].into_iter().take(effort(1, 1, 2)) {
        fail_allocations(&way(TargetLayout::DEFAULT).trial());
    }
}

#[test]
fn a_failed_allocation_leaves_no_trace_with_small_blocks() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    let small = |layout| TargetLayout { size: 32 * MIB, ..layout };
    let all = [(IN_PLACE, TargetLayout::MKFS_SMALL_BLOCKS), (UNLOGGED, TargetLayout::SMALL_BLOCKS)];
    for (way, layout) in all.into_iter().take(effort(1, 1, 2)) {
        fail_allocations(&way(small(layout)).trial());
    }
}

#[test]
fn nothing_is_written_after_a_failed_write() {
    require!(Tool("xfs_repair"));
    fail_writes(&IN_PLACE(TargetLayout::DEFAULT).trial());
}

#[test]
fn writing_over_data_changes_nothing_else() {
    for way in BOTH {
        for layout in [TargetLayout::DEFAULT, TargetLayout::SMALL_BLOCKS, TargetLayout::PLAIN] {
            overwrites(&way(layout).trial());
        }
    }
}

#[test]
fn returned_space_is_available_again() {
    require!(Tool("xfs_repair"));
    for layout in [TargetLayout::DEFAULT, TargetLayout::PLAIN, TargetLayout::SMALL_BLOCKS] {
        space_comes_back(&IN_PLACE(layout).trial());
    }
}

/// Freeing works on a full image, whatever the extent map and the trees of its groups need.
#[test]
fn freeing_works_when_full() {
    require!(Tool("xfs_repair"));
    for layout in [
        TargetLayout::DEFAULT,
        TargetLayout::SMALL_BLOCKS,
        TargetLayout::PLAIN,
        TargetLayout::MANY_GROUPS,
        TargetLayout::SMALL_LOG,
    ] {
        freeing_when_full(&IN_PLACE(layout).trial(), true);
    }
    // Other implementations do not open images with such logs.
    let target = IN_PLACE(TargetLayout::TINY_LOG);
    freeing_when_full(&Trial { check: &|_| {}, ..target.trial() }, true);
}

#[test]
fn random_changes_of_a_full_image_free_all_space() {
    require!(Tool("xfs_repair"));
    for layout in [
        TargetLayout::DEFAULT,
        TargetLayout::SMALL_BLOCKS,
        TargetLayout::PLAIN,
        TargetLayout::SMALL_LOG,
    ] {
        for seed in 0..effort(1, 3, 100) {
            random_when_full(&IN_PLACE(layout).trial(), seed, 1_500);
        }
    }
}

/// The smallest logs that kernels accept, with records rounded to sectors and to stripe units.
#[test]
fn small_durable_changes_go_round_the_log_and_round_again() {
    require!(Tool("xfs_repair"), Tool("mkfs.xfs"));
    let of_mkfs = |options| TargetLayout { mkfs: Some(options), ..TargetLayout::DEFAULT };
    let all = [
        TargetLayout::SMALL_LOG,
        of_mkfs("-s size=4096 -l size=10m"),
        of_mkfs("-l su=32768,size=10m"),
        of_mkfs("-l su=262144,size=16128k"),
    ];
    for layout in all.into_iter().step_by(effort(2, 2, 1)) {
        let target = IN_PLACE(layout);
        let log = TargetLayout::log_of(&target.make(0).unwrap());
        rounds(&target.trial(), &[log], effort(4, 4, 10));
    }
}

/// Logs smaller than others open, down to sizes of which one operation may take most.
#[test]
fn small_durable_changes_go_round_tiny_logs_and_round_again() {
    let tiny = |layout, kib: u32| TargetLayout { log_bytes: Some(kib << 10), ..layout };
    for layout in [
        tiny(TargetLayout::DEFAULT, 512),
        tiny(TargetLayout::DEFAULT, 388),
        tiny(TargetLayout::SMALL_BLOCKS, 257),
        tiny(TargetLayout::LARGE_DIR_BLOCKS, 514),
        tiny(TargetLayout::LARGE_BLOCKS, 4 << 10),
    ] {
        let target = IN_PLACE(layout);
        let log = TargetLayout::log_of(&target.make(0).unwrap());
        // xfs_repair does not accept such a log.
        rounds(&Trial { check: &|_| (), ..target.trial() }, &[log], effort(4, 10, 10));
    }
}

#[test]
fn parts_of_a_file_written_in_any_order_are_in_order_on_the_device() {
    require!(Tool("xfs_repair"));
    let large = TargetLayout { size: 256 * MIB, ..TargetLayout::DEFAULT };
    let small_blocks = TargetLayout { block_size: 1024, ..large };
    let plain = TargetLayout { size: 256 * MIB, ..TargetLayout::PLAIN };
    for layout in [large, small_blocks, plain] {
        writes_out_of_order(&IN_PLACE(layout).trial());
        scattered_writes(&IN_PLACE(layout).trial());
    }
}
