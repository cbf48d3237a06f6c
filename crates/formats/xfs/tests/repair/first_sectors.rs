//! Images that lost their first sectors, or their end.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use testkit::fs_tree::{FsTree, Rules};
use testkit::{KernelMount, MountOptions, require};
use vfs::{FileSystem, NewInode};
use xfs::format::geometry::Geometry;
use xfs::resize::grow;
use xfs::{OpenOptions, Xfs};

use super::shown;
use super::subject::repaired;
use crate::changing::{MIB, TargetLayout, assert_clean};
use crate::common::image::{device, golden};

const DIRECTORIES: u64 = 12;
const FILES: u64 = 40;

fn mkfs(options: &'static str, size: u64) -> TargetLayout {
    TargetLayout { mkfs: Some(options), size, ..TargetLayout::DEFAULT }
}

/// Returns an image with files in directories in all groups.
fn filled(layout: &TargetLayout) -> MemoryDevice {
    let device = Arc::new(layout.make());
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    for dir in 0..DIRECTORIES {
        let dir = fs.mkdir(fs.root(), dir.to_string().as_bytes(), &new).unwrap();
        for number in 0..FILES {
            let file = fs.create(dir, number.to_string().as_bytes(), &new).unwrap();
            let contents: Vec<u8> = (0..5_000).map(|at| (at * 7 + number) as u8).collect();
            fs.write(file, 0, &contents, None).unwrap();
        }
    }
    fs.close().unwrap();
    device.fork()
}

fn tree(device: &MemoryDevice) -> FsTree {
    let fs = Xfs::open(Arc::new(device.fork()), &OpenOptions::default()).unwrap();
    FsTree::of(&fs).unwrap()
}

/// Returns the start of an image, as an image.
fn cut(device: &MemoryDevice, len: u64) -> MemoryDevice {
    let mut bytes = vec![0; len as usize];
    device.read_at(0, &mut bytes).unwrap();
    MemoryDevice::from_bytes(&bytes)
}

/// Asserts that a repair of the image restores a tree.
#[track_caller]
fn assert_restored(name: &str, damaged: MemoryDevice, expected: &FsTree) {
    let outcome = repaired(damaged).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(outcome.left.is_empty() && outcome.is_complete, "{name}: {}", shown(&outcome.left));
    let differences = expected.differences(&tree(&outcome.device), Rules::default());
    assert!(differences.is_empty(), "{name}: {:?}", &differences[..differences.len().min(5)]);
    assert_clean(&outcome.device);
}

#[test]
fn lost_first_sectors_are_restored_from_copies_wherever_they_are() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for options in [
        "",
        "-d su=16k,sw=4",
        "-d su=64k,sw=4 -l su=64k",
        "-d su=1m,sw=4",
        "-d agsize=20m",
        "-b size=1024 -d agcount=5",
        "-s size=4096 -d su=64k,sw=4",
    ] {
        let image = filled(&mkfs(options, 128 * MIB));
        let expected = tree(&image);
        for len in [512, 4096] {
            let damaged = image.fork();
            damaged.zero_range(0, len).unwrap();
            assert_restored(&format!("{options}, {len} bytes"), damaged, &expected);
        }
    }
}

#[test]
fn lost_first_sectors_of_grown_file_systems_are_restored() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    for options in ["", "-d su=64k,sw=4 -l su=64k"] {
        let small = filled(&mkfs(options, 128 * MIB));
        let image = MemoryDevice::new(1000 * MIB);
        small.for_each_part(|offset, bytes| image.write_at(offset, bytes)).unwrap();
        let image = Arc::new(image);
        grow(image.clone(), image.len()).unwrap();
        let expected = tree(&image);
        for len in [512, 4096] {
            let damaged = image.fork();
            damaged.zero_range(0, len).unwrap();
            assert!(!xfs::has_superblock_copy(&damaged), "a search is not needed for {options}");
            assert!(xfs::has_superblock_copy_anywhere(&damaged), "{options}");
            assert_restored(&format!("{options}, {len} bytes"), damaged, &expected);
        }
    }
}

#[test]
fn lost_superblocks_of_version_4_are_restored_from_copies() {
    require!(Tool("xfs_repair"));
    for name in ["v4", "v4-ftype"] {
        let image = device(&golden(name));
        let expected = tree(&image);
        let damaged = image.fork();
        damaged.zero_range(0, 512).unwrap();
        assert!(xfs::has_superblock_copy_anywhere(&damaged), "{name}");
        assert_restored(name, damaged, &expected);
    }
}

#[test]
fn the_root_is_found_where_no_copy_names_it() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    const ROOTINO: u64 = 56;
    let image = filled(&mkfs("-d su=64k,sw=4,agcount=4", 128 * MIB));
    let expected = tree(&image);
    let damaged = image.fork();
    for group in 1..4 {
        let start = group * 32 * MIB;
        let mut sector = [0; 512];
        damaged.read_at(start, &mut sector).unwrap();
        assert!(sector.starts_with(b"XFSB"));
        sector[ROOTINO as usize..ROOTINO as usize + 24].fill(0xff);
        xfs::format::checksum::seal(&mut sector, xfs::format::superblock::CRC_OFFSET);
        damaged.write_at(start, &sector).unwrap();
    }
    damaged.zero_range(0, 512).unwrap();
    assert_restored("no root", damaged, &expected);
}

/// Asserts that the kernel mounts and unmounts an image, where possible. `xfs_repair` does not expect a log in the
/// first group.
fn mounts(device: &MemoryDevice) {
    require!(Mount("xfs"));
    let home = testkit::scratch();
    let path = home.path().join("image");
    testkit::crash::write_image(device, &path).unwrap();
    KernelMount::new(&path, &MountOptions::read_write("xfs")).unmount();
}

/// Files whose inode and blocks are before the cut are unchanged, and the image is valid.
#[test]
fn groups_before_the_truncation_are_kept() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let image = filled(&mkfs("-d agcount=4", 192 * MIB));
    let expected = tree(&image);
    let group = 48 * MIB;
    let geometry = geometry(&image);
    let group_of = |path: &[u8]| {
        let ino = expected.get(path).unwrap().attributes.ino;
        geometry.split_ino(ino).unwrap().0.0
    };
    // The log is in the third group.
    for (len, groups) in [
        (4 * group - 4096, 3),
        (3 * group + 20 * MIB, 3),
        (3 * group, 3),
        (2 * group + MIB, 2),
        (2 * group, 2),
        (group + 24 * MIB, 1),
        (group, 1),
    ] {
        let damaged = cut(&image, len);
        let outcome = repaired(damaged).unwrap_or_else(|error| panic!("{len}: {error}"));
        assert!(outcome.left.is_empty() && outcome.is_complete, "{len}: {}", shown(&outcome.left));
        match groups {
            1 => mounts(&outcome.device),
            _ => assert_clean(&outcome.device),
        }
        let found = tree(&outcome.device);
        let is_kept = |path: &&Vec<u8>| {
            let (before, after) = (expected.get(path), found.get(path));
            before.zip(after).is_some_and(|(before, after)| before.contents == after.contents)
        };
        // Blocks of files are in the group of the inode.
        let is_before = |path: &&Vec<u8>| {
            let dir =
                path.iter().position(|byte| *byte == b'/').map_or(&path[..], |at| &path[..at]);
            group_of(path) < groups && group_of(dir) < groups
        };
        let before: Vec<&Vec<u8>> = expected.paths.keys().filter(is_before).collect();
        let kept = before.iter().copied().filter(is_kept).count();
        assert!(
            before.len() > FILES as usize && kept == before.len(),
            "{len}: {kept} of {}",
            before.len()
        );
    }
}

fn geometry(device: &MemoryDevice) -> Geometry {
    let fs = Xfs::open(Arc::new(device.fork()), &OpenOptions::default()).unwrap();
    Geometry::new(fs.superblock())
}
