//! Space that is given back and shared, in images changed in place, judged by the kernel: it replays what
//! a crash left, goes on with what was half done, and sees in every file what it should.

mod changing;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blockdev::{BlockDevice, MemoryDevice};
use changing::{Layout, write_image};
use oracle::{KernelMount, MkfsXfs, MountOptions, require};
use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
use vfs::{AllocateMode, FileSystem, Ino, NewInode};
use xfs::{OpenOptions, Xfs};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 200;

fn open(device: &Arc<MemoryDevice>) -> Xfs {
    let options = OpenOptions { cache_bytes: 16 << 20, ..OpenOptions::default() };
    Xfs::open_writable(device.clone(), &options).unwrap()
}

/// Has the kernel replay what a crash left and look at it, and xfs_repair after it.
fn judge_crash(left: &MemoryDevice, look: impl FnOnce(&Path)) {
    let folder = oracle::scratch();
    let path = folder.path().join("left");
    write_image(left, &path).unwrap();
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    look(mount.path());
    mount.unmount();
    oracle::xfs_repair(&path);
}

/// Copies of the device, taken behind checkpoints that are written all the time while something changes:
/// some of them.
fn crashes_of(device: &MemoryDevice, fs: &Xfs, change: impl FnOnce()) -> Vec<MemoryDevice> {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let copies = scope.spawn(|| {
            let (mut copies, mut stride, mut seen) = (Vec::new(), 1_usize, 0_usize);
            while !is_done.load(Ordering::Relaxed) {
                fs.sync().unwrap();
                seen += 1;
                if seen.is_multiple_of(stride) {
                    copies.push(device.fork());
                }
                if copies.len() == 12 {
                    stride *= 2;
                    copies = copies.into_iter().step_by(2).collect();
                }
            }
            copies
        });
        change();
        is_done.store(true, Ordering::Relaxed);
        copies.join().unwrap()
    })
}

/// Frees a file, with crashes meanwhile: the kernel frees the rest of it.
fn check_freed_by_kernel(fill: impl FnOnce(&Xfs, Ino)) {
    let device = Arc::new(Layout::DEFAULT.make());
    let fs = open(&device);
    let root = fs.root();
    let free = fs.statfs().unwrap().blocks_free;
    let ino = fs.create(root, b"file", &NewInode::default()).unwrap();
    fill(&fs, ino);
    fs.sync().unwrap();
    let crashes = crashes_of(&device, &fs, || fs.unlink(root, b"file", None).unwrap());
    let mut gone = 0;
    for left in &crashes {
        judge_crash(left, |root| gone += u32::from(!root.join("file").exists()));
    }
    assert!(gone >= 3, "{gone} of {} crashes were behind the unlink", crashes.len());
    fs.close().unwrap();
    changing::assert_clean(&device);
    let left = fs_free(&device);
    // The first chunk of inodes was there before; a tree may have grown.
    assert!(free - left < 16, "{left} of {free} blocks are free");
}

fn fs_free(device: &Arc<MemoryDevice>) -> u64 {
    let fs = Xfs::open(device.clone(), &OpenOptions::default()).unwrap();
    fs.statfs().unwrap().blocks_free
}

#[test]
fn the_kernel_goes_on_freeing_a_file_of_many_extents() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    check_freed_by_kernel(|fs, ino| {
        for at in 0..4000 {
            fs.write(ino, at * 2 * BLOCK, &[at as u8]).unwrap();
        }
    });
}

#[test]
fn the_kernel_goes_on_freeing_many_attributes() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    check_freed_by_kernel(|fs, ino| {
        for at in 0..300 {
            let len = if at % 3 == 0 { 60_000 } else { 2000 };
            fs.set_xattr(ino, format!("user.{at}").as_bytes(), &vec![1; len]).unwrap();
        }
    });
}

/// Files that share blocks with each other.
fn share(root: &Path) {
    let a = File::create(root.join("a")).unwrap();
    let bytes: Vec<u8> = (0..BLOCKS * BLOCK).map(|at| (at / 512 % 251) as u8 + 1).collect();
    a.write_all_at(&bytes, 0).unwrap();
    a.sync_all().unwrap();
    for name in ["b", "c", "d"] {
        let file = File::create(root.join(name)).unwrap();
        ioctl_ficlone(&file, &a).unwrap();
        if name == "c" {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, 30 * BLOCK, 15 * BLOCK).unwrap();
        }
    }
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn load(path: &Path) -> MemoryDevice {
    let file = File::open(path).unwrap();
    let device = MemoryDevice::new(file.metadata().unwrap().len());
    let mut bytes = vec![0; 1 << 20];
    for at in (0..device.len()).step_by(bytes.len()) {
        let len = bytes.len().min((device.len() - at) as usize);
        file.read_exact_at(&mut bytes[..len], at).unwrap();
        if bytes[..len].iter().any(|byte| *byte != 0) {
            device.write_at(at, &bytes[..len]).unwrap();
        }
    }
    device
}

fn contents(fs: &Xfs, name: &str) -> Vec<u8> {
    let ino = fs.lookup(fs.root(), name.as_bytes()).unwrap();
    let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Files change, blocks that all of them had among them, and the kernel replays what crashes leave:
/// what was durable, with all that nobody changed in place since.
#[test]
fn the_kernel_sees_what_each_file_had_of_shared_blocks() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let home = oracle::scratch();
    let path = home.path().join("image");
    MkfsXfs::default().create(&path, 320 << 20);
    oracle::populate_with_kernel(&path, "xfs", share);
    let made = load(&path);
    for seed in 0..4 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let device = Arc::new(made.fork());
        let fs = open(&device);
        let ino = |name: &str| fs.lookup(fs.root(), name.as_bytes()).unwrap();
        for _ in 0..5 {
            fs.sync().unwrap();
            let durable = NAMES.map(|name| contents(&fs, name));
            // Each change is of blocks that are shared, or moves to others anyway.
            let mut touched = [false; 4];
            for _ in 0..rng.usize(1..12) {
                let which = rng.usize(..4);
                let (file, at) = (ino(NAMES[which]), rng.u64(..BLOCKS) * BLOCK);
                let len = rng.u64(1..60) * BLOCK;
                match rng.u8(..4) {
                    0 => fs.allocate(file, at, len, AllocateMode::PunchHole).unwrap(),
                    1 => fs.truncate(file, at).unwrap(),
                    _ => {
                        // What it has alone is written over in place.
                        touched[which] = true;
                        fs.write(file, at, &vec![rng.u8(..); len as usize]).unwrap();
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

/// Where nothing but what was freed is left, writing to files waits for a checkpoint and goes on.
#[test]
fn a_full_image_uses_what_was_freed() {
    require!(Tool("xfs_repair"), Mount("xfs"));
    let device = Arc::new(Layout::DEFAULT.make());
    let fs = open(&device);
    let create = |name: &str| fs.create(fs.root(), name.as_bytes(), &NewInode::default()).unwrap();
    let (first, filler) = (create("first"), create("filler"));
    fs.write(first, 0, &vec![1; 8 << 20]).unwrap();
    let mut at = 0;
    for len in [1 << 20, 64 << 10, BLOCK] {
        while fs.write(filler, at, &vec![2; len as usize]).is_ok() {
            at += len;
        }
        fs.truncate(filler, at).unwrap();
    }
    for round in 0..10_u8 {
        let name = format!("next{round}");
        let last = fs.lookup(fs.root(), format!("next{}", round.wrapping_sub(1)).as_bytes());
        match last {
            Ok(_) => {
                let name = format!("next{}", round - 1);
                fs.unlink(fs.root(), name.as_bytes(), None).unwrap();
            }
            Err(_) => fs.truncate(first, 0).unwrap(),
        }
        let next = create(&name);
        fs.write(next, 0, &vec![round; 7 << 20]).unwrap();
    }
    judge_crash(&device.fork(), |_| {});
    fs.close().unwrap();
    changing::assert_clean(&device);
}
