//! Logs left by the kernel.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use testkit::{Ignore, Tree, require, scratch};
use vfs::FileSystem;
use xfs::{OpenOptions, Xfs};

use crate::changing::assert_clean;
use crate::common::image::unpack_device;
use crate::log_recovery::support::{
    Load, MIB, Stop, assert_replayed_alike, by_us, copy, dirty, sync, tree,
};

/// Makes changes that are all in the log at the end, some of them also written back.
fn assert_all_replayed(options: &str, size: u64, seed: u64) {
    let home = scratch();
    let image = dirty(home.path(), options, size, Stop::Flushed, |root| {
        let mut load = Load::new(seed);
        for _ in 0..3 {
            load.run(root, 300);
            sync(root);
        }
        load.run(root, 200);
    });
    let report = assert_replayed_alike(&image, options);
    assert!(report.transactions > 0 && report.items_replayed > 0, "{options}: {report:?}");
}

#[test]
fn images_of_all_kinds_are_replayed_as_the_kernel_does() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"));
    let options = [
        "",
        "-m rmapbt=0,reflink=0",
        "-b size=1024 -n size=8192",
        "-i nrext64=0 -m bigtime=0,finobt=0",
        "-i size=1024 -n parent=0",
        "-s size=4096",
    ];
    for (seed, options) in (0..).zip(options).step_by(testkit::effort(2, 1, 1)) {
        assert_all_replayed(options, 300 * MIB, seed);
    }
}

#[test]
fn logs_of_all_shapes_are_replayed_as_the_kernel_does() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"));
    let options = ["-l su=32k", "-l su=256k", "-l su=4096 -n size=65536"];
    for (seed, options) in (20..).zip(options).step_by(testkit::effort(2, 1, 1)) {
        assert_all_replayed(options, 300 * MIB, seed);
    }
}

#[test]
fn interrupted_work_of_a_kernel_is_completed() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"));
    for (seed, options) in (40..).zip(["-l size=2500b", "-l size=3000b,su=32k"]) {
        let home = scratch();
        let image = dirty(home.path(), options, 128 * MIB, Stop::AtOnce, |root| {
            let mut load = Load::new(seed);
            // Small logs wrap around.
            for _ in 0..6 {
                load.run(root, 500);
                sync(root);
            }
            load.run(root, 700);
        });
        assert_replayed_alike(&image, options);
    }
}

/// Directory blocks of several non-contiguous blocks. Linux 6.18 refuses to replay such a log, so the tree before the
/// crash is the reference.
#[test]
fn directory_blocks_in_pieces_are_put_together() {
    require!(Tool("mkfs.xfs"), Tool("xfs_io"), Tool("xfs_repair"), Mount("xfs"));
    let home = scratch();
    let options = "-b size=1024 -n size=4096 -d agcount=2 -m rmapbt=0,reflink=0";
    let mut expected = None;
    let image = dirty(home.path(), options, 64 * MIB, Stop::Flushed, |root| {
        let dir = root.join("dir");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(root.join("file"), "contents").unwrap();
        sync(root);
        leave_single_blocks(root);
        for number in 0..700 {
            let name = format!("{}{number}", "n".repeat(100));
            std::fs::hard_link(root.join("file"), dir.join(name)).unwrap();
        }
        expected = Some(Tree::of(root));
    });
    let ours = copy(&image, "ours");
    by_us(&ours).unwrap();
    testkit::xfs_repair(&ours);
    let found = testkit::differences(&expected.unwrap(), &tree(&ours), &Ignore::default());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Uses up all space except for single, separate blocks.
fn leave_single_blocks(root: &Path) {
    let none_kept = ["-x", "-c", "resblks 16"];
    assert!(
        testkit::command("xfs_io").args(none_kept).arg(root).output().unwrap().status.success()
    );
    let big = File::create(root.join("big")).unwrap();
    let (mut size, mut step) = (0, MIB);
    while step >= 1024 {
        match fallocate(&big, FallocateFlags::empty(), size, step) {
            Ok(()) => size += step,
            Err(_) => step /= 2,
        }
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for at in (0..8 * MIB).step_by(2048) {
        fallocate(&big, punch, at, 1024).unwrap();
    }
}

/// Linux 7.2 wrote this log with quotas of users, groups and projects.
#[test]
fn quota_items_of_a_kernels_log_are_replayed() {
    require!(Tool("xfs_repair"));
    let device = Arc::new(unpack_device(include_bytes!("../golden/quota-log.img.gz.gz")));
    let reader = Xfs::open(device.clone(), &OpenOptions::default()).unwrap();
    for name in ["f4", "f9", "g1", "g3", "d"] {
        reader.lookup(reader.root(), name.as_bytes()).unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    drop(reader);
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    assert!(fs.recovered().items_replayed > 20, "{:?}", fs.recovered());
    fs.close().unwrap();
    // xfs_repair compares the quotas with the usage of all owners.
    assert_clean(&device);
}
