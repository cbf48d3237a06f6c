//! Files that are too large for one operation, and crashes while they are freed.

use operations::RunOperations;
use operations::data::cut_to;
use std::sync::Arc;

use disk::MemoryDevice;
use testkit::{KernelMount, MountOptions};
use vfs::{FileSystem, Ino, NewInode};

use crate::mkfs::Options;
use crate::stub::{self, Logged};
use crate::{OpenOptions, Xfs};

const BLOCK: u64 = 4096;
/// Size of the log, small so that an operation frees few extents.
const LOG_BLOCKS: usize = 256;
/// Minimum number of operations to free a large file, and the approximate number of crashes checked.
const STEPS: usize = 6;

fn options() -> Options {
    Options { allow_small: true, ..Options::new(64 << 20) }
}

fn create(fs: &Xfs) -> Ino {
    fs.create(fs.root_ino(), b"file", &NewInode::default()).unwrap()
}

/// Removes the name of the only file and frees the file, one operation at a time. Returns the number of operations.
fn unlink_in_steps(fs: &Xfs, ino: Ino, mut between: impl FnMut(usize)) -> usize {
    fs.open(ino).unwrap();
    fs.unlink(fs.root_ino(), b"file", None).unwrap();
    for step in 1.. {
        fs.sync().unwrap();
        between(step);
        let before = fs.load(ino).unwrap();
        if fs.atomically(|op| op.end_inode(before.clone())).unwrap() {
            return step;
        }
    }
    0
}

/// Checks that images after crashes are sound, and that the rest of the file is freed at the next open.
fn check_unlink(fill: impl Fn(&Xfs, Ino)) {
    let image = Logged::new(&options(), LOG_BLOCKS);
    let free = |image: &Logged| image.fs.statfs().unwrap().blocks_free;
    let at_once = create(&image.fs);
    fill(&image.fs, at_once);
    image.fs.unlink(image.fs.root_ino(), b"file", None).unwrap();
    assert!(image.fs.load(at_once).is_err());
    let ino = create(&image.fs);
    fill(&image.fs, ino);
    let mut left = Vec::new();
    let steps = unlink_in_steps(&image.fs, ino, |step| {
        if step.is_power_of_two() {
            let crashed = image.crash();
            left.push(free(&crashed));
            operations::orphans::inactivate_all(&*crashed.fs).unwrap();
            assert!(crashed.fs.load(ino).is_err());
            crashed.judge();
        }
    });
    assert!(steps > STEPS, "{steps} operations");
    image.judge();
    assert!(left.is_sorted() && left.first() < left.last(), "{left:?}");
}

/// Checks that the kernel frees the rest of the file after it has replayed the log.
fn check_freed_by_kernel(fill: impl Fn(&Xfs, Ino)) {
    let device = Arc::new(stub::make(&options()));
    let free = |device: Arc<MemoryDevice>| {
        let fs = Xfs::open(device, &OpenOptions::default()).unwrap();
        fs.statfs().unwrap().blocks_free
    };
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let ino = create(&fs);
    fill(&fs, ino);
    let mut left = Vec::new();
    unlink_in_steps(&fs, ino, |step| {
        if step.is_power_of_two() {
            left.push(device.fork());
        }
    });
    fs.close().unwrap();
    let expected = free(device);
    for crashed in left {
        stub::write_to_file(&crashed, |path| {
            let mount = KernelMount::new(path, &MountOptions::read_write("xfs"));
            assert!(!mount.path().join("file").exists());
            mount.unmount();
            testkit::xfs_repair(path);
            let file = std::fs::File::open(path).unwrap();
            let device = Arc::new(disk::FileDevice::new(file).unwrap());
            let fs = Xfs::open(device, &OpenOptions::default()).unwrap();
            let found = fs.statfs().unwrap().blocks_free;
            // Trees may have shrunk by different amounts.
            assert!(found.abs_diff(expected) < 16, "{found} and {expected} blocks");
        });
    }
}

fn many_extents(fs: &Xfs, ino: Ino) {
    for at in 0..1500 {
        fs.write(ino, at * 2 * BLOCK, &[at as u8], None).unwrap();
    }
}

fn many_attributes(fs: &Xfs, ino: Ino) {
    for at in 0..300 {
        let len = if at % 3 == 0 { 60_000 } else { 2000 };
        fs.set_xattr(ino, format!("user.{at}").as_bytes(), &vec![1; len]).unwrap();
    }
}

#[test]
fn a_file_of_many_extents_is_freed_in_several_operations() {
    testkit::require!(Tool("xfs_repair"));
    check_unlink(many_extents);
}

#[test]
fn many_attributes_are_freed_in_several_operations() {
    testkit::require!(Tool("xfs_repair"));
    check_unlink(many_attributes);
}

#[test]
fn the_kernel_goes_on_freeing_a_file_of_many_extents() {
    testkit::require!(Tool("xfs_repair"), Mount("xfs"));
    check_freed_by_kernel(many_extents);
}

#[test]
fn the_kernel_goes_on_freeing_many_attributes() {
    testkit::require!(Tool("xfs_repair"), Mount("xfs"));
    check_freed_by_kernel(many_attributes);
}

#[test]
fn a_large_truncation_is_several_operations_that_crashes_may_part() {
    testkit::require!(Tool("xfs_repair"));
    let image = Logged::new(&options(), LOG_BLOCKS);
    let ino = create(&image.fs);
    for at in 0..3000 {
        image.fs.write(ino, at * 2 * BLOCK, &[1; 10], None).unwrap();
    }
    let mut steps = 0;
    let mut is_done = false;
    while !is_done {
        let before = image.fs.load(ino).unwrap();
        is_done =
            image.fs.atomically(|op| cut_to(&*image.fs, op, (&before, &()), 100, None)).unwrap();
        image.fs.sync().unwrap();
        steps += 1;
        if !usize::is_power_of_two(steps) {
            continue;
        }
        let crashed = image.crash();
        assert_eq!(crashed.fs.attributes(ino).unwrap().size, 100);
        let mut bytes = [9; 200];
        assert_eq!(crashed.fs.read(ino, 0, &mut bytes).unwrap(), 100);
        assert_eq!(bytes[..100], [[1; 10].as_slice(), &[0; 90]].concat());
        // Blocks past the end stay invisible when the file grows, and are freed when it is truncated again.
        crashed.fs.truncate(ino, 6000 * BLOCK, None).unwrap();
        let mut past = vec![9; 64 << 10];
        crashed.fs.read(ino, 0, &mut past).unwrap();
        assert!(past[10..].iter().all(|byte| *byte == 0));
        crashed.fs.truncate(ino, 100, None).unwrap();
        assert_eq!(crashed.fs.attributes(ino).unwrap().blocks_512, 8);
        crashed.judge();
    }
    assert!(steps > STEPS, "{steps} operations");
    image.judge();
}
