//! Frequent operations on names allocate no heap memory.

use std::fs::File;
use std::ops::ControlFlow;
use std::sync::Arc;

use allocation_counter::measure;
use disk::FileDevice;
use ext4::{DeferPolicy, Ext4, OpenOptions};
use testkit::{Mke2fs, require};
use vfs::{Cookie, FileSystem, Ino};

use crate::images::{ImageFile, NEW, later};

const NAMES: u32 = 20_000;

fn name(n: u32) -> [u8; 12] {
    let mut name = *b"file-0000000";
    let mut rest = n;
    for digit in name[5..].iter_mut().rev() {
        (*digit, rest) = (b'0' + (rest % 10) as u8, rest / 10);
    }
    name
}

/// Number of entries and allocations of a listing in cookie order, and of one in block order.
fn listings(fs: &Ext4, dir: Ino) -> [(u64, u64); 2] {
    let mut counts = [0; 2];
    let by_hash = measure(|| {
        fs.readdir(dir, Cookie(0), &mut |_| {
            counts[0] += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    });
    let in_place = measure(|| {
        fs.for_each_entry(dir, &mut |_| {
            counts[1] += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    });
    [(counts[0], by_hash.count_total), (counts[1], in_place.count_total)]
}

#[test]
fn listings_allocate_nothing_per_entry() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for features in ["dir_index", "^dir_index"] {
        let image = ImageFile::ext4(1024, features, 64);
        let fs = image.open();
        let names = if features == "dir_index" { NAMES } else { 2_000 };
        let dir = fs.mkdir(fs.root(), b"dir", &NEW).unwrap();
        let file = fs.create(dir, b"file", &NEW).unwrap();
        for n in 0..names {
            fs.link(file, dir, &name(n), None).unwrap();
        }
        // The first listing allocates the buffers that the thread keeps.
        listings(&fs, dir);
        for (entries, allocations) in listings(&fs, dir) {
            assert_eq!(entries, u64::from(names) + 3);
            // For an index with several levels, a list of its nodes is allocated.
            assert!(allocations < 40, "{features}: {allocations} allocations");
        }
        image.close(fs);
    }
}

/// In a directory that is in the cache.
#[test]
fn names_come_and_go_without_the_heap() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let image = ImageFile::ext4(4096, "dir_index", 128);
    let fs = image.open();
    let dir = fs.mkdir(fs.root(), b"dir", &NEW).unwrap();
    let create = |n| fs.create(dir, &name(n), &NEW).map(drop).unwrap();
    let unlink = |n| fs.unlink(dir, &name(n), later(1)).unwrap();
    (0..NAMES).for_each(create);
    (0..NAMES).for_each(unlink);
    (0..NAMES).for_each(create);
    let unlinks = measure(|| (0..NAMES).for_each(unlink));
    let creates = measure(|| (0..NAMES).for_each(create));
    let lookups = measure(|| (0..NAMES).for_each(|n| assert!(fs.lookup(dir, &name(n)).is_ok())));
    // New cache buffers and growing lists of dirty buffers do not count as allocations of operations.
    assert!(unlinks.count_total < u64::from(NAMES) / 100, "{unlinks:?}");
    assert!(creates.count_total < u64::from(NAMES) / 100, "{creates:?}");
    assert_eq!(lookups.count_total, 0);
    image.close(fs);
}

/// The memory for deferred files is reused. New allocations are made for many files at a time.
#[test]
fn files_wait_without_the_heap() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    // Operations on many files need a larger journal.
    let mke2fs = Mke2fs::new("ext4").block_size(4096).inode_count(50_000);
    let image = ImageFile::new(&mke2fs.arguments(["-J", "size=64"]), 256);
    let policy = DeferPolicy {
        blocks_min: 2,
        streak_per_block: 0,
        files_max: 4_000,
        parts: 8,
        blocks_per_part: 1,
    };
    let options = OpenOptions { defer_creates: Some(policy), ..OpenOptions::default() };
    let file = File::options().read(true).write(true).open(&image.path).unwrap();
    let fs = Ext4::open_writable(Arc::new(FileDevice::new(file).unwrap()), &options).unwrap();
    let dir = fs.mkdir(fs.root(), b"dir", &NEW).unwrap();
    let create = |n| fs.create(dir, &name(n), &NEW).map(drop).unwrap();
    let unlink = |n| fs.unlink(dir, &name(n), later(1)).unwrap();
    for _ in 0..2 {
        (0..NAMES).for_each(create);
        assert!(fs.files_deferred() > 0);
        (0..NAMES).for_each(unlink);
    }
    // Each group of files that is applied together allocates a list of inodes, and lists of some parts grow.
    let creates = measure(|| (0..NAMES).for_each(create));
    assert!(creates.count_total < u64::from(NAMES) / 20, "{creates:?}");
    fs.sync().unwrap();
    let lookups = measure(|| (0..NAMES).for_each(|n| assert!(fs.lookup(dir, &name(n)).is_ok())));
    assert_eq!(lookups.count_total, 0);
    (NAMES..NAMES + 3_000).for_each(create);
    assert_eq!(fs.files_deferred(), 3_000);
    let seen = measure(|| {
        for n in NAMES..NAMES + 3_000 {
            let ino = fs.lookup(dir, &name(n)).unwrap();
            assert_eq!(fs.attributes(ino).unwrap().links, 1);
        }
    });
    assert_eq!((seen.count_total, fs.files_deferred()), (0, 3_000));
    image.close(fs);
}

/// Like a walk by `find`: looks up and lists directories of all sizes.
#[test]
fn walking_a_tree_takes_no_heap() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    // One block; an index with one leaf level; an index of two levels.
    const SIZES: [u32; 5] = [0, 3, 40, 2_000, 20_000];
    for features in ["dir_index", "^dir_index", "inline_data"] {
        let image = ImageFile::ext4(1024, features, 128);
        let fs = image.open();
        let file = fs.create(fs.root(), b"file", &NEW).unwrap();
        let sizes = if features == "^dir_index" { &SIZES[..4] } else { &SIZES[..] };
        for (nth, &size) in sizes.iter().enumerate() {
            let dir = fs.mkdir(fs.root(), &name(nth as u32), &NEW).unwrap();
            for n in 0..size {
                fs.link(file, dir, &name(n), None).unwrap();
            }
        }
        let walk = || {
            for (nth, &size) in sizes.iter().enumerate() {
                let dir = fs.lookup(fs.root(), &name(nth as u32)).unwrap();
                let mut entries = 0;
                fs.readdir(dir, Cookie(0), &mut |_| {
                    entries += 1;
                    ControlFlow::Continue(())
                })
                .unwrap();
                assert_eq!(entries, size + 2);
            }
        };
        // The first walk allocates the buffers that the thread keeps.
        walk();
        assert_eq!(measure(walk).count_total, 0, "{features}");
        image.close(fs);
    }
}
