//! Growing in place, checked by xfs_repair and the kernel.

mod crash;
mod refused;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, MemoryDevice, RecordingDevice};
use testkit::crash::write_image;
use testkit::{Ignore, KernelMount, MountOptions, Tree, require};
use vfs::{FileSystem, Ino, NewInode};
use xfs::resize::{Growth, grow, size_bytes};
use xfs::{OpenOptions, Xfs};

use crate::changing::{MIB, TargetLayout, assert_clean};

/// Sectors and blocks of 4 KiB.
const MKFS_SECTORS: TargetLayout =
    TargetLayout { mkfs: Some("-s size=4096"), ..TargetLayout::DEFAULT };
/// Groups of 20 MiB, with a shorter last group.
const SHORT_GROUP: TargetLayout =
    TargetLayout { mkfs: Some("-d agsize=20m"), size: 78 * MIB, ..TargetLayout::DEFAULT };
const SHORT_GROUP_PLAIN: TargetLayout = TargetLayout {
    mkfs: Some(
        "-d agsize=20m -m rmapbt=0,reflink=0,bigtime=0,inobtcount=0,finobt=0 \
         -i nrext64=0,sparse=0,exchange=0 -n parent=0",
    ),
    ..SHORT_GROUP
};
const SHORT_GROUP_SMALL_BLOCKS: TargetLayout = TargetLayout {
    mkfs: Some("-d agsize=20m -b size=1024 -n size=8192"),
    block_size: 1024,
    ..SHORT_GROUP
};
const ONE_GROUP: TargetLayout = TargetLayout { ag_count: Some(1), ..TargetLayout::DEFAULT };

const LAYOUTS: [TargetLayout; 12] = [
    TargetLayout::DEFAULT,
    TargetLayout::SMALL_BLOCKS,
    TargetLayout::LARGE_INODES,
    TargetLayout::LARGE_DIR_BLOCKS,
    TargetLayout::PLAIN,
    TargetLayout::LARGE_BLOCKS,
    TargetLayout::MANY_GROUPS,
    MKFS_SECTORS,
    SHORT_GROUP,
    SHORT_GROUP_PLAIN,
    SHORT_GROUP_SMALL_BLOCKS,
    ONE_GROUP,
];

pub(crate) fn options() -> OpenOptions {
    OpenOptions { cache_bytes: 16 << 20, ..OpenOptions::default() }
}

/// Returns a device with the same contents, followed by zeros.
fn longer(device: &MemoryDevice, len: u64) -> MemoryDevice {
    let copy = MemoryDevice::new(len);
    device.for_each_part(|offset, bytes| copy.write_at(offset, bytes)).unwrap();
    copy
}

/// Returns a device with the same contents, followed by random bytes where new groups will be.
fn with_noise(device: &MemoryDevice, len: u64) -> MemoryDevice {
    let copy = longer(device, len);
    let mut random = fastrand::Rng::with_seed(len);
    let noise: Vec<u8> = (0..1 << 20).map(|_| random.u8(..)).collect();
    let mut at = device.len();
    while at < len {
        let some = noise.len().min((len - at) as usize);
        copy.write_at(at, &noise[..some]).unwrap();
        at += (8 * MIB).max(some as u64);
    }
    copy
}

/// Makes `files` files of `bytes` bytes each.
fn fill(fs: &Xfs, name: &str, files: u64, bytes: usize) {
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    let dir = fs.mkdir(fs.root(), name.as_bytes(), &new).unwrap();
    for number in 0..files {
        let file = fs.create(dir, number.to_string().as_bytes(), &new).unwrap();
        let contents: Vec<u8> = (0..bytes).map(|at| (at as u64 * 7 + number) as u8).collect();
        fs.write(file, 0, &contents, None).unwrap();
    }
}

/// Returns an image of a kind with some files, closed cleanly.
fn filled(layout: &TargetLayout) -> MemoryDevice {
    let device = Arc::new(layout.make());
    let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
    fill(&fs, "before", 60, 20_000);
    fs.close().unwrap();
    device.fork()
}

fn grown(device: MemoryDevice, size: u64) -> (MemoryDevice, Growth) {
    let device = Arc::new(device);
    let growth = grow(device.clone(), size).unwrap_or_else(|error| panic!("to {size}: {error}"));
    (device.fork(), growth)
}

/// Returns the last group with an inode, according to inode numbers.
fn last_used_group(device: &Arc<MemoryDevice>) -> u64 {
    let fs = Xfs::open(device.clone(), &options()).unwrap();
    let raw = fs.superblock().raw.clone();
    let bits = raw.agblklog + raw.inopblog;
    let root = fs.root();
    let (mut most, mut number) = (0, 0_u64);
    while let Ok(Ino(ino)) = fs.lookup(root, format!("after{number}").as_bytes()) {
        most = most.max(ino >> bits);
        number += 1;
    }
    most
}

#[test]
fn grown_images_are_sound_and_their_new_groups_are_used() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for layout in LAYOUTS {
        let image = filled(&layout);
        for size in [layout.size + 17 * MIB, layout.size * 2 + 12_345, layout.size * 5] {
            let (device, growth) = grown(with_noise(&image, size), size);
            assert!(growth.bytes_after() <= size, "{layout:?}");
            assert_clean(&device);
            let device = Arc::new(device);
            let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
            assert_eq!(fs.superblock().raw.dblocks.get(), growth.blocks_after);
            assert_eq!(size_bytes(&*device).unwrap(), growth.bytes_after());
            for number in 0..u64::from(growth.groups_after) * 2 {
                fill(&fs, &format!("after{number}"), 3, 10_000);
            }
            fs.close().unwrap();
            assert_clean(&device.fork());
            assert_eq!(last_used_group(&device) + 1, u64::from(growth.groups_after), "{layout:?}");
        }
    }
}

/// A size without effect writes nothing.
#[test]
fn unchanged_sizes_write_nothing() {
    let image = filled(&TargetLayout::DEFAULT);
    for size in [64 * MIB, 64 * MIB + 4095, 79 * MIB] {
        let device = Arc::new(RecordingDevice::new(Arc::new(longer(&image, 80 * MIB))));
        assert!(!grow(device.clone(), size).unwrap().is_change());
        assert_eq!(device.take(), []);
    }
}

/// Grows in small steps, as for a disk that grows occasionally.
#[test]
fn images_grow_again_and_again() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for layout in [SHORT_GROUP, SHORT_GROUP_SMALL_BLOCKS, TargetLayout::SMALL_LOG] {
        let mut device = filled(&layout);
        let mut random = fastrand::Rng::with_seed(3);
        for step in 0..testkit::effort(6, 12, 60) {
            let size = device.len() + random.u64(1..40 * MIB);
            (device, _) = grown(longer(&device, size), size);
            assert_clean(&device);
            let fs = Xfs::open_writable(Arc::new(device.fork()), &options()).unwrap();
            fill(&fs, &format!("step{step}"), 5, 300_000);
        }
    }
}

#[test]
fn the_last_group_may_be_full() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let device = Arc::new(SHORT_GROUP.make());
    let fs = Xfs::open_writable(device.clone(), &options()).unwrap();
    let new = NewInode { permissions: 0o644, ..NewInode::default() };
    for number in 0_u32.. {
        let file = fs.create(fs.root(), number.to_string().as_bytes(), &new);
        let Ok(file) = file else { break };
        if fs.write(file, 0, &vec![number as u8; 4 << 20], None).is_err() {
            break;
        }
    }
    fs.close().unwrap();
    let (device, growth) = grown(longer(&device, 120 * MIB), 120 * MIB);
    assert_eq!(growth.groups_after, 6);
    assert_clean(&device);
}

/// Returns the tree according to the kernel.
fn kernel_tree(path: &Path) -> Tree {
    let mount = KernelMount::new(path, &MountOptions::read_only("xfs"));
    let tree = Tree::of(mount.path());
    mount.unmount();
    tree
}

#[test]
fn the_kernel_reads_what_was_there_and_fills_what_is_new() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let home = testkit::scratch();
    let (old, new) = (home.path().join("old"), home.path().join("new"));
    for layout in [TargetLayout::DEFAULT, SHORT_GROUP, SHORT_GROUP_PLAIN, SHORT_GROUP_SMALL_BLOCKS]
    {
        let image = filled(&layout);
        write_image(&image, &old).unwrap();
        let (device, _) = grown(longer(&image, 400 * MIB), 400 * MIB);
        write_image(&device, &new).unwrap();
        testkit::assert_same(&kernel_tree(&old), &kernel_tree(&new), &Ignore::default());
        let mount = KernelMount::new(&new, &MountOptions::read_write("xfs"));
        for number in 0..60_u8 {
            let dir = mount.path().join(format!("new{number}"));
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("file"), vec![number; 4 << 20]).unwrap();
        }
        mount.unmount();
        testkit::xfs_repair(&new);
    }
}

/// 4 groups become 4096.
#[test]
fn a_gibibyte_becomes_a_tebibyte() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let home = testkit::scratch();
    let path = home.path().join("image");
    testkit::MkfsXfs::default().create(&path, 1 << 30);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let before = std::time::Instant::now();
    file.set_len(1 << 40).unwrap();
    let growth = grow(Arc::new(FileDevice::new(file).unwrap()), 1 << 40).unwrap();
    println!("{growth:?} took {:?}", before.elapsed());
    assert_eq!((growth.groups_before, growth.groups_after), (4, 4096));
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    std::fs::write(mount.path().join("file"), [1; 5000]).unwrap();
    mount.unmount();
    testkit::xfs_repair(&path);
}

#[test]
fn version_4_grows_by_whole_groups() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let home = testkit::scratch();
    let path = home.path().join("image");
    for options in ["-m crc=0", "-m crc=0 -b size=1024 -n ftype=1", "-m crc=0 -l lazy-count=0"] {
        testkit::MkfsXfs::default().options(options).create(&path, 64 * MIB);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(200 * MIB).unwrap();
        file.write_all_at(&vec![0xa5; 3 << 20], 63 * MIB + (1 << 20)).unwrap();
        let device = Arc::new(FileDevice::new(file).unwrap());
        let growth = grow(device, 200 * MIB).unwrap();
        assert_eq!((growth.groups_before, growth.groups_after), (4, 12));
        testkit::xfs_repair(&path);
    }
}
