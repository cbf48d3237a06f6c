//! Freed and shared space in images changed in place, checked by the kernel: it replays the log after a crash, and must
//! see the right contents of every file.

use crate::changing;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use changing::{TargetLayout, write_image};
use disk::MemoryDevice;
use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
use testkit::{KernelMount, MkfsXfs, MountOptions, require};
use vfs::{AllocateMode, FileSystem, Ino, NewInode};
use xfs::{OpenOptions, Xfs};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 200;

fn open(device: &Arc<MemoryDevice>) -> Xfs {
    let options = OpenOptions { cache_bytes: 16 << 20, ..OpenOptions::default() };
    Xfs::open_writable(device.clone(), &options).unwrap()
}

/// Lets the kernel replay the log of a crashed image and look at it, followed by xfs_repair.
fn judge_crash(left: &MemoryDevice, look: impl FnOnce(&Path)) {
    let folder = testkit::scratch();
    let path = folder.path().join("left");
    write_image(left, &path).unwrap();
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    look(mount.path());
    mount.unmount();
    testkit::xfs_repair(&path);
}

/// Makes files that share blocks with each other.
fn share(root: &Path) {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    let a = options.open(root.join("a")).unwrap();
    let bytes: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| (at / 512 % 251) as u8 + 1).collect();
    a.write_all_at(&bytes, 0).unwrap();
    a.sync_all().unwrap();
    for name in ["b", "c", "d"] {
        let file = options.open(root.join(name)).unwrap();
        ioctl_ficlone(&file, &a).unwrap();
        if name == "c" {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, 30 * BLOCK, 15 * BLOCK).unwrap();
        }
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn contents(fs: &Xfs, name: &str) -> Vec<u8> {
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap();
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Files with shared blocks change, and the kernel replays the log after crashes. Files must have their durable
/// contents, except for those overwritten in place since.
#[test]
fn the_kernel_sees_what_each_file_had_of_shared_blocks() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let home = testkit::scratch();
    let path = home.path().join("image");
    MkfsXfs::default().create(&path, 320 << 20);
    testkit::populate_with_kernel(&path, "xfs", share);
    let made = testkit::crash::read_image(&path).unwrap();
    for seed in 0..testkit::effort(2, 4, 100) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let device = Arc::new(made.fork());
        let fs = open(&device);
        let ino = |name: &str| fs.lookup(fs.root(), name.as_bytes()).unwrap();
        for _ in 0..5 {
            fs.sync().unwrap();
            let durable = NAMES.map(|name| contents(&fs, name));
            // Each change is of shared blocks, or allocates new ones anyway.
            let mut touched = [false; 4];
            for _ in 0..rng.usize(1..12) {
                let which = rng.usize(..4);
                let (file, at) = (ino(NAMES[which]), rng.u64(..BLOCKS) * BLOCK);
                let len = rng.u64(1..60) * BLOCK;
                match rng.u8(..4) {
                    0 => fs.allocate(file, at, len, AllocateMode::PunchHole).unwrap(),
                    1 => fs.truncate(file, at, None).unwrap(),
                    _ => {
                        // Blocks of this file alone are overwritten in place.
                        touched[which] = true;
                        fs.write(file, at, &vec![rng.u8(..); len as usize], None).unwrap();
                    }
                }
            }
            if rng.bool() {
                judge_crash(&device.fork(), |root| {
                    for (which, name) in NAMES.iter().enumerate().filter(|(at, _)| !touched[*at]) {
                        let found = std::fs::read(root.join(name)).unwrap();
                        assert!(found == durable[which], "{name}");
                    }
                });
            }
        }
        let last = NAMES.map(|name| contents(&fs, name));
        fs.close().unwrap();
        judge_crash(&device, |root| {
            for (which, name) in NAMES.iter().enumerate() {
                assert!(std::fs::read(root.join(name)).unwrap() == last[which], "{name}");
            }
        });
    }
}

/// Uses all space available to ordinary writes.
fn fill(fs: &Xfs, filler: Ino) {
    let mut at = fs.attributes(filler).unwrap().size;
    for len in [1 << 20, 64 << 10, BLOCK] {
        while fs.write(filler, at, &vec![2; len as usize], None).is_ok() {
            at += len;
        }
        fs.truncate(filler, at, None).unwrap();
    }
}

/// Holes in files that share blocks free nothing, and make all trees of their groups grow.
#[test]
fn blocks_of_several_files_are_given_up_when_full() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    const MANY: u64 = 3_000;
    let home = testkit::scratch();
    let path = home.path().join("image");
    MkfsXfs::default().create(&path, 320 << 20);
    testkit::populate_with_kernel(&path, "xfs", |root| {
        let make = |name| File::create_new(root.join(name)).unwrap();
        let a = make("a");
        a.write_all_at(&vec![7; (MANY * BLOCK) as usize], 0).unwrap();
        a.sync_all().unwrap();
        ioctl_ficlone(make("b"), File::open(root.join("a")).unwrap()).unwrap();
    });
    let device = Arc::new(testkit::crash::read_image(&path).unwrap());
    let fs = open(&device);
    let b = fs.lookup(fs.root(), b"b").unwrap();
    let filler = fs.create(fs.root(), b"filler", &NewInode::default()).unwrap();
    fill(&fs, filler);
    for at in (1..MANY).step_by(2) {
        // Sometimes with edges, which are copied.
        let edge = if at % 50 == 1 { 100 } else { 0 };
        let (start, len) = (at * BLOCK - edge, BLOCK + 2 * edge);
        let outcome = fs.allocate(b, start, len, AllocateMode::PunchHole);
        outcome.unwrap_or_else(|error| panic!("block {at}: {error}"));
    }
    fill(&fs, filler);
    fs.truncate(b, 5 * BLOCK + 5, None).unwrap();
    fs.unlink(fs.root(), b"a", None).unwrap();
    fs.unlink(fs.root(), b"b", None).unwrap();
    fs.close().unwrap();
    judge_crash(&device, |_| {});
}

/// If the only free space was just freed, writing to files waits for a checkpoint and continues.
#[test]
fn a_full_image_uses_what_was_freed() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let device = Arc::new(TargetLayout::DEFAULT.make());
    let fs = open(&device);
    let create = |name: &str| fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    let (first, filler) = (create("first"), create("filler"));
    fs.write(first, 0, &vec![1; 8 << 20], None).unwrap();
    fill(&fs, filler);
    for round in 0..10_u8 {
        let name = format!("next{round}");
        let last = fs.lookup(fs.root(), format!("next{}", round.wrapping_sub(1)).as_bytes());
        match last {
            Ok(_) => {
                let name = format!("next{}", round - 1);
                fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
            }
            Err(_) => fs.truncate(first, 0, None).unwrap(),
        }
        let next = create(&name);
        fs.write(next, 0, &vec![round; 7 << 20], None).unwrap();
    }
    judge_crash(&device.fork(), |_| {});
    fs.close().unwrap();
    changing::assert_clean(&device);
}
