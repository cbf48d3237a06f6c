//! Files that share blocks, made by the kernel and changed here. Checked by `xfs_repair`, by a model of each file's
//! contents, and by the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fastrand::Rng;
use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
use testkit::{KernelMount, MkfsXfs, MountOptions};
use vfs::{AllocateMode, FileSystem, Ino};

use crate::Xfs;
use crate::alloc::tests::Fresh;
use crate::stub::Logged;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 200;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const LOG_BLOCKS: usize = 4000;

/// Creates four files with blocks that belong to one, two, three or four of them.
fn share(root: &Path) {
    let a = File::create(root.join("a")).unwrap();
    let bytes: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| (at / 512 % 251) as u8 + 1).collect();
    a.write_all_at(&bytes, 0).unwrap();
    a.sync_all().unwrap();
    let clone = |name, of: &str| {
        let file = File::create(root.join(name)).unwrap();
        ioctl_ficlone(&file, File::open(root.join(of)).unwrap()).unwrap();
        file
    };
    let b = clone("b", "a");
    b.write_all_at(&[8; 10 * BLOCK as usize], 10 * BLOCK).unwrap();
    let c = clone("c", "a");
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&c, flags, 30 * BLOCK, 15 * BLOCK).unwrap();
    fallocate(&c, flags, 190 * BLOCK, 10 * BLOCK).unwrap();
    fallocate(&c, FallocateFlags::KEEP_SIZE, 195 * BLOCK, 3 * BLOCK).unwrap();
    let d = clone("d", "b");
    d.write_all_at(&[9; 3 * BLOCK as usize], 38 * BLOCK).unwrap();
}

fn contents(fs: &Xfs, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Expected contents of each file, by name.
struct SharedModel {
    files: Vec<(&'static str, Ino, Vec<u8>)>,
}

impl SharedModel {
    fn of(fs: &Xfs) -> Self {
        let file = |name: &'static str| {
            let ino = fs.lookup(fs.root_ino(), name.as_bytes()).unwrap();
            (name, ino, contents(fs, ino))
        };
        Self { files: NAMES.into_iter().map(file).collect() }
    }

    #[track_caller]
    fn check(&self, fs: &Xfs) {
        for (name, ino, expected) in &self.files {
            assert!(contents(fs, *ino) == *expected, "{name}");
        }
    }

    fn check_by_kernel(&self, path: &Path) {
        let mount = KernelMount::new(path, &MountOptions::read_only("xfs"));
        for (name, _, expected) in &self.files {
            assert!(std::fs::read(mount.path().join(name)).unwrap() == *expected, "{name}");
        }
        mount.unmount();
    }

    /// Makes one random change of one file.
    fn step(&mut self, fs: &Xfs, rng: &mut Rng) {
        let index = rng.usize(..self.files.len());
        let (_, ino, file) = &mut self.files[index];
        let whole = rng.bool();
        let unit = if whole { BLOCK } else { 1 };
        let at = rng.u64(..BLOCKS * BLOCK / unit) * unit;
        let len = rng.u64(1..=20 * BLOCK / unit) * unit;
        let (start, end) = (at as usize, (at + len) as usize);
        match rng.u8(..12) {
            0..=5 => {
                let bytes = vec![rng.u8(..); len as usize];
                fs.write(*ino, at, &bytes, None).unwrap();
                file.resize(file.len().max(end), 0);
                file[start..end].copy_from_slice(&bytes);
            }
            6 | 7 => {
                let modes = [AllocateMode::PunchHole, AllocateMode::ZeroKeepSize];
                fs.allocate(*ino, at, len, modes[rng.usize(..2)]).unwrap();
                let end = end.min(file.len());
                file[start.min(end)..end].fill(0);
            }
            8 => {
                fs.allocate(*ino, at, len, AllocateMode::Zero).unwrap();
                file.resize(file.len().max(end), 0);
                file[start..end].fill(0);
            }
            9 => {
                fs.allocate(*ino, at, len, AllocateMode::UnwrittenKeepSize).unwrap();
            }
            10 => {
                let size = rng.u64(BLOCKS * BLOCK / 2..BLOCKS * BLOCK);
                fs.truncate(*ino, size, None).unwrap();
                file.resize(size as usize, 0);
            }
            _ if rng.u8(..8) == 0 => {
                fs.truncate(*ino, 0, None).unwrap();
                file.clear();
            }
            _ => {}
        }
    }
}

#[test]
fn shared_blocks_are_freed_with_the_last_file_that_has_them() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for (options, order) in [("", [0, 1, 2, 3]), ("", [3, 1, 0, 2]), ("-m rmapbt=0", [2, 0, 3, 1])]
    {
        let image = Fresh::filled(options, 320 << 20, share);
        let (fs, root) = (&image.fs, image.fs.root_ino());
        for (step, name) in order.map(|which| NAMES[which].as_bytes()).into_iter().enumerate() {
            let ino = fs.lookup(root, name).unwrap();
            if step % 2 == 0 {
                fs.unlink(root, name, None).unwrap();
            } else {
                fs.allocate(ino, 5 * BLOCK, 50 * BLOCK, AllocateMode::PunchHole).unwrap();
                image.judge();
                fs.truncate(ino, 100 * BLOCK, None).unwrap();
                image.judge();
                fs.truncate(ino, 0, None).unwrap();
                assert_eq!(fs.attributes(ino).unwrap().blocks_512, 0);
                fs.write(ino, 0, b"new", None).unwrap();
            }
            image.judge();
        }
    }
}

#[test]
fn changes_of_shared_blocks_affect_only_one_file() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for (options, log) in [("", false), ("-m rmapbt=0", false), ("-b size=1024", true), ("", true)]
    {
        let home = testkit::scratch();
        let path = home.path().join("image");
        MkfsXfs::default().options(options).create(&path, 320 << 20);
        testkit::populate_with_kernel(&path, "xfs", share);
        for seed in 0..3 {
            let mut rng = Rng::with_seed(seed);
            let (image, fresh);
            let fs = if log {
                image = Some(Logged::of_file(&path, LOG_BLOCKS));
                fresh = None;
                &image.as_ref().unwrap().fs
            } else {
                image = None;
                fresh = Some(Fresh::filled(options, 320 << 20, share));
                &fresh.as_ref().unwrap().fs
            };
            let mut model = SharedModel::of(fs);
            for round in 0..4 {
                for _ in 0..30 {
                    model.step(fs, &mut rng);
                    model.check(fs);
                }
                match (&image, &fresh) {
                    (Some(image), _) => image.judge(),
                    (_, Some(fresh)) => fresh.judge(),
                    _ => {}
                }
                if round == 3 {
                    match (&image, &fresh) {
                        (Some(image), _) => image.write_to_file(|path| model.check_by_kernel(path)),
                        (_, Some(fresh)) => model.check_by_kernel(&fresh.path),
                        _ => {}
                    }
                }
            }
            for name in NAMES {
                fs.unlink(fs.root_ino(), name.as_bytes(), None).unwrap();
            }
            match (&image, &fresh) {
                (Some(image), _) => image.judge(),
                (_, Some(fresh)) => fresh.judge(),
                _ => {}
            }
        }
    }
}

#[test]
fn blocks_no_longer_shared_are_written_in_place() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let image = Fresh::filled("", 320 << 20, share);
    let (fs, root) = (&image.fs, image.fs.root_ino());
    let place = |ino| {
        let mut found = None;
        fs.extent_map(ino, 150 * BLOCK, BLOCK, &mut |extent| {
            found = Some(extent.place);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        found
    };
    let a = fs.lookup(root, b"a").unwrap();
    for name in ["b", "c"] {
        fs.unlink(root, name.as_bytes(), None).unwrap();
    }
    let before = place(a);
    let d = fs.lookup(root, b"d").unwrap();
    assert_eq!(place(d), before);
    fs.write(d, 150 * BLOCK, b"x", None).unwrap();
    assert_ne!(place(d), before);
    fs.write(a, 150 * BLOCK, b"y", None).unwrap();
    assert_eq!(place(a), before);
    image.judge();
}

#[test]
fn a_crash_keeps_the_shared_data_of_every_file() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let home = testkit::scratch();
    let path = home.path().join("image");
    MkfsXfs::default().create(&path, 320 << 20);
    testkit::populate_with_kernel(&path, "xfs", share);
    let image = Logged::of_file(&path, LOG_BLOCKS);
    let (fs, root) = (&image.fs, image.fs.root_ino());
    let durable = SharedModel::of(fs);
    let ino = |name: &str| fs.lookup(root, name.as_bytes()).unwrap();
    let (a, d) = (ino("a"), ino("d"));
    // All but one of the files drop their shared blocks, and the last one changes them.
    fs.unlink(root, b"b", None).unwrap();
    fs.truncate(a, 0, None).unwrap();
    fs.write(ino("c"), 0, &[1; (BLOCKS * BLOCK) as usize], None).unwrap();
    // Blocks that were never shared may be overwritten in place: overwriting is not atomic.
    fs.write(d, 0, &[2; 38 * BLOCK as usize], None).unwrap();
    fs.write(d, 41 * BLOCK, &[2; 159 * BLOCK as usize], None).unwrap();
    assert_eq!(image.checkpoints(), 0);
    let crashed = image.crash();
    durable.check(&crashed.fs);
    crashed.judge();
    image.judge();
}
