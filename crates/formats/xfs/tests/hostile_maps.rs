//! Deliberately damaged extent maps with valid checksums: reading them ends, with contents or an error.

use crate::support;

use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, OverlayDevice};
use fastrand::Rng;
use rustix::fs::{FallocateFlags, fallocate};
use support::files::{Expected, note_tree};
use support::image::{kernel_image, open};
use vfs::{FileSystem, Ino};
use xfs::format::address::FsBlock;
use xfs::format::geometry::Geometry;
use xfs::format::inode::{CORE_SIZE_V3, seal_slot};
use xfs::format::{btree, checksum};
use xfs::{OpenOptions, Xfs};

fn fill(root: &Path, block: u64) {
    for count in [8, 1500] {
        let mut file = File::create(root.join(format!("fragments-{count}"))).unwrap();
        file.write_all(&vec![1; (2 * count * block) as usize]).unwrap();
        file.sync_all().unwrap();
        for hole in 0..count {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, hole * 2 * block, block).unwrap();
        }
    }
    fs::write(root.join("plain"), vec![2; 10_000]).unwrap();
    symlink("x".repeat(1000), root.join("link")).unwrap();
}

/// The location of a structure on the device, and the way to seal it.
#[derive(Clone, Copy)]
struct Target {
    at: u64,
    len: usize,
    is_inode: bool,
}

fn read(device: &dyn BlockDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    device.read_at(at, &mut bytes).unwrap();
    bytes
}

fn inode_target(geometry: &Geometry, ino: Ino) -> Target {
    let (ag, ag_ino) = geometry.split_ino(ino).unwrap();
    let (block, offset) = geometry.inode_place(ag_ino);
    let at = geometry.byte_of(geometry.block_of(ag, block)) + offset as u64;
    Target { at, len: geometry.inode_size(), is_inode: true }
}

/// Returns the blocks of the tree whose root is in a valid inode's data fork, if there is one.
fn tree_targets(geometry: &Geometry, device: &dyn BlockDevice, inode: &Target) -> Vec<Target> {
    let slot = read(device, inode.at, inode.len);
    if slot[5] != 3 {
        return Vec::new();
    }
    let end = if slot[82] == 0 { inode.len } else { CORE_SIZE_V3 + usize::from(slot[82]) * 8 };
    let root = &slot[CORE_SIZE_V3..end];
    let area = btree::TreeShape::BMBT.root_area(root.len());
    let (mut level, mut blocks) = (area.level(root), Vec::new());
    let mut row: Vec<u64> = (0..area.count(root)).map(|at| area.pointer(root, at)).collect();
    while level > 0 {
        level -= 1;
        let mut below = Vec::new();
        for pointer in row {
            let at = geometry.byte_of(geometry.device_block(FsBlock(pointer)));
            blocks.push(Target { at, len: geometry.block_size(), is_inode: false });
            let node = read(device, at, geometry.block_size());
            let area = btree::TreeShape::BMBT.node_area(geometry);
            let count = if level == 0 { 0 } else { area.count(&node) };
            below.extend((0..count).map(|at| area.pointer(&node, at)));
        }
        row = below;
    }
    blocks
}

/// Changes parts of a structure: bytes, bits, or copies one part over another.
fn damage(bytes: &mut [u8], from: usize, rng: &mut Rng) {
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(from..bytes.len());
        match rng.u8(..5) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] ^= 1 << rng.u8(..8),
            2 => bytes[at..].iter_mut().take(8).for_each(|byte| *byte = 0xff),
            3 => bytes[at..].iter_mut().take(16).for_each(|byte| *byte = 0),
            _ => {
                // One record or pointer over another.
                let room = (bytes.len() - from) / 8 - 2;
                let (a, b) = (from + rng.usize(..room) * 8, from + rng.usize(..room) * 8);
                bytes.copy_within(a..a + 16, b);
            }
        }
    }
}

/// Reads everything, and returns the number of runs.
fn read_all(fs: &Xfs, ino: Ino) -> usize {
    let mut runs = 0;
    let _ = fs.extent_map(ino, 0, u64::MAX, &mut |run| {
        runs += 1;
        let mut bytes = [0; 100];
        let _ = fs.read(ino, run.offset + run.len - 1, &mut bytes);
        ControlFlow::Continue(())
    });
    let _ = fs.readlink(ino);
    runs
}

fn attack(file: &Path, expected: &[Expected], seed: u64) {
    let sound = open(file);
    let geometry = Geometry::new(sound.superblock());
    drop(sound);
    let below: Arc<dyn BlockDevice> = Arc::new(FileDevice::new(File::open(file).unwrap()).unwrap());
    let mut rng = Rng::with_seed(seed);
    for one in expected {
        let ino = Ino(one.ino);
        let inode = inode_target(&geometry, ino);
        let mut targets = tree_targets(&geometry, &*below, &inode);
        assert_eq!(targets.is_empty(), one.name != "fragments-1500");
        targets.push(inode);
        // Inodes and tree blocks are each damaged in a share of the trials.
        for trial in 0..testkit::effort(100, 100, 20_000) {
            let target = if trial % 2 == 0 { inode } else { targets[rng.usize(..targets.len())] };
            let mut bytes = read(&*below, target.at, target.len);
            let from = if !target.is_inode {
                0
            } else if trial % 4 == 0 {
                24
            } else {
                CORE_SIZE_V3
            };
            damage(&mut bytes, from, &mut rng);
            if target.is_inode {
                seal_slot(&mut bytes);
            } else {
                checksum::seal(&mut bytes, btree::TreeShape::BMBT.crc_offset());
            }
            let device = Arc::new(OverlayDevice::new(below.clone()));
            device.write_at(target.at, &bytes).unwrap();
            let options = OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::default() };
            let runs = read_all(&Xfs::open(device, &options).unwrap(), ino);
            assert!(runs < 10_000, "{runs} runs of {}", one.name);
        }
    }
}

#[test]
fn damaged_maps_are_read_to_an_end() {
    testkit::require!(Tool("mkfs.xfs"), Tool("filefrag"), Mount("xfs"));
    let (image, expected) = kernel_image("-b size=1024", fill, note_tree);
    attack(image.path(), &expected, 1);
}
