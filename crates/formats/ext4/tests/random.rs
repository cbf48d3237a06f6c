//! Random operations on ext4 and on the reference model, with one and with several threads. Results and final trees
//! must be equal, and e2fsck and the kernel must find nothing.

use crate::changing;

use std::sync::Arc;

use changing::crashing::Ext4Target;
use changing::{ImageParameters, MIB};
use disk::MemoryDevice;
use ext4::{DeferPolicy, Ext4, OpenOptions};
use testkit::crash::write_image;
use testkit::fs_tree::FsTree;
use testkit::operation::Mix;
use testkit::trial::{
    freeing_when_full, one_thread, random_when_full, scattered_writes, several_threads,
    writes_out_of_order,
};
use testkit::{KernelMount, Leave, MountOptions, effort, require, shown_differences};

/// Many names in few directories, so that the directories get indexes.
const LARGE_DIRECTORIES: Mix =
    Mix { names: 80, names_per_directory: 400, depth_max: 1, ..Mix::ALL };

fn run(layout: ImageParameters, mix: Mix, seed: u64, steps: usize) -> Arc<MemoryDevice> {
    one_thread(&Ext4Target::new(layout).trial(), mix, seed, steps)
}

fn run_threads(
    layout: ImageParameters,
    threads: usize,
    seed: u64,
    steps: usize,
) -> Arc<MemoryDevice> {
    several_threads(&Ext4Target::new(layout).trial(), threads, seed, steps)
}

/// Asserts that the kernel shows the same tree as this crate.
fn assert_kernel_agrees(device: &MemoryDevice) {
    let folder = testkit::scratch();
    let path = folder.path().join("image");
    write_image(device, &path).unwrap();
    let kernel = {
        let mount = KernelMount::new(&path, &MountOptions::read_only("ext4"));
        testkit::Tree::of(mount.path())
    };
    let fs = Ext4::open(Arc::new(device.fork()), &OpenOptions::default()).unwrap();
    let ours = FsTree::of(&fs).unwrap();
    let list = shown_differences(&kernel, &ours, Leave::default());
    assert!(list.is_empty(), "{}", list.join("\n"));
}

#[test]
fn one_thread_does_as_the_model_does() {
    require!(Tool("e2fsck"));
    for seed in 0..effort(2, 4, 100) {
        run(ImageParameters::DEFAULT, Mix::ALL, seed, 1_000);
    }
}

#[test]
fn small_blocks_block_maps_and_old_features_do_as_the_model_does() {
    require!(Tool("e2fsck"));
    for seed in 100..100 + effort(1, 2, 50) {
        for layout in
            [ImageParameters::SMALL_BLOCKS, ImageParameters::PLAIN, ImageParameters::NO_JOURNAL]
        {
            run(layout, Mix::ALL, seed, 600);
        }
        run(ImageParameters::BLOCK_MAPS, Mix::ALL, seed, 600);
    }
}

#[test]
fn folding_names_do_as_the_model_does() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for seed in 500..500 + effort(1, 2, 100) {
        for layout in [ImageParameters::FOLDED, ImageParameters::FOLDED_SMALL_BLOCKS] {
            run(layout, Mix::ALL, seed, 1_000);
            run(ImageParameters { inodes: 2_000, ..layout }, LARGE_DIRECTORIES, seed, 1_500);
        }
    }
    run_threads(
        ImageParameters { inodes: 2_000, size: 128 << 20, ..ImageParameters::FOLDED },
        3,
        504,
        250,
    );
    // Files are never deferred in a case-insensitive directory, because deferred names are compared by their bytes.
    let layout = ImageParameters { inodes: 2_000, ..ImageParameters::FOLDED_SMALL_BLOCKS };
    let mut target = Ext4Target::new(layout);
    target.defer_creates = Some(DeferPolicy { blocks_min: 1, ..DeferPolicy::LARGE_IN_PARTS });
    one_thread(&target.trial(), LARGE_DIRECTORIES, 505, 1_500);
}

#[test]
fn clusters_do_as_the_model_does() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let small_blocks = ImageParameters { block_size: 1024, ..ImageParameters::CLUSTERS };
    let large_clusters =
        ImageParameters { cluster_size: Some(64 << 10), ..ImageParameters::CLUSTERS };
    for seed in 400..400 + effort(1, 2, 50) {
        for layout in [ImageParameters::CLUSTERS, small_blocks, large_clusters] {
            run(layout, Mix::ALL, seed, 800);
        }
        run(ImageParameters { inodes: 2_000, ..small_blocks }, LARGE_DIRECTORIES, seed, 1_500);
    }
}

#[test]
fn large_directories_do_as_the_model_does() {
    require!(Tool("e2fsck"));
    for (layout, seed) in [(ImageParameters::SMALL_BLOCKS, 200), (ImageParameters::DEFAULT, 201)] {
        run(ImageParameters { inodes: 2_000, ..layout }, LARGE_DIRECTORIES, seed, 2_500);
    }
}

#[test]
fn the_kernel_shows_what_random_operations_left() {
    require!(Mount("ext4"), Tool("mke2fs"), Tool("e2fsck"));
    for seed in 300..300 + effort(1, 2, 50) {
        assert_kernel_agrees(&run(ImageParameters::DEFAULT, Mix::ALL, seed, 700));
        assert_kernel_agrees(&run(ImageParameters::CLUSTERS, Mix::ALL, seed, 700));
        assert_kernel_agrees(&run(ImageParameters::SMALL_BLOCKS, LARGE_DIRECTORIES, seed, 700));
    }
}

#[test]
fn several_threads_do_as_their_models_do() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (seed, threads) in [(1, 2), (2, 4), (3, 8)] {
        run_threads(
            ImageParameters { inodes: 2_000, size: 128 << 20, ..ImageParameters::DEFAULT },
            threads,
            seed,
            250,
        );
    }
    let layout = ImageParameters { inodes: 2_000, size: 128 << 20, ..ImageParameters::CLUSTERS };
    run_threads(layout, 4, 6, 250);
    for (seed, threads) in [(4, 3), (5, 6)] {
        let layout =
            ImageParameters { inodes: 2_000, size: 128 << 20, ..ImageParameters::SMALL_BLOCKS };
        run_threads(layout, threads, seed, 250);
    }
}

#[test]
fn the_kernel_shows_what_several_threads_left() {
    require!(Mount("ext4"), Tool("e2fsck"));
    let layout = ImageParameters { inodes: 2_000, size: 128 << 20, ..ImageParameters::DEFAULT };
    assert_kernel_agrees(&run_threads(layout, 4, 77, 250));
}

/// Freeing works on a full device, even if the map needs blocks for it.
#[test]
fn freeing_works_when_full() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let roomy = |layout| ImageParameters { size: 64 * MIB, inodes: 1024, ..layout };
    for layout in [
        ImageParameters::DEFAULT,
        ImageParameters::SMALL_BLOCKS,
        ImageParameters::NO_JOURNAL,
        ImageParameters::CLUSTERS,
    ] {
        freeing_when_full(&Ext4Target::new(roomy(layout)).trial(), true);
    }
    freeing_when_full(&Ext4Target::new(roomy(ImageParameters::BLOCK_MAPS)).trial(), false);
}

#[test]
fn random_changes_of_a_full_image_free_all_space() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for layout in [
        ImageParameters::DEFAULT,
        ImageParameters::SMALL_BLOCKS,
        ImageParameters::BLOCK_MAPS,
        ImageParameters::CLUSTERS,
    ] {
        for seed in 0..effort(1, 2, 50) {
            random_when_full(&Ext4Target::new(layout).trial(), seed, 1_500);
        }
    }
}

#[test]
fn parts_of_a_file_written_in_any_order_are_in_order_on_the_device() {
    require!(Tool("e2fsck"));
    let large = ImageParameters { size: 128 * MIB, ..ImageParameters::DEFAULT };
    let small_blocks = ImageParameters { block_size: 1024, ..large };
    let clusters = ImageParameters { size: 128 * MIB, ..ImageParameters::CLUSTERS };
    for layout in [large, small_blocks, clusters] {
        writes_out_of_order(&Ext4Target::new(layout).trial());
    }
    for layout in [large, small_blocks] {
        scattered_writes(&Ext4Target::new(layout).trial());
    }
}
