//! Long random runs on one large sparse file, similar to fsx: every read is compared with a model, and from time to
//! time the file system is closed, checked and reopened.

use crate::files;

use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use ext4::Ext4;
use fastrand::Rng;
use files::{FileChange, FileModel, FileParameters, MIB, SHAPES, check, create, make, open};
use testkit::{effort, require, scratch};
use vfs::{AllocateMode, FileSystem, Ino};

const IMAGE_SIZE: u64 = 96 * MIB;
/// Number of steps between closings.
const STEPS_OPEN: u64 = 500;
const MODES: [AllocateMode; 5] = [
    AllocateMode::Unwritten,
    AllocateMode::UnwrittenKeepSize,
    AllocateMode::PunchHole,
    AllocateMode::Zero,
    AllocateMode::ZeroKeepSize,
];

/// Returns an offset in one of two windows of a sparse file: at its start and far out.
fn offset(rng: &mut Rng, shape: FileParameters) -> u64 {
    let block = u64::from(shape.block_size);
    let window = 6000 * block;
    let base = if rng.bool() { 0 } else { (shape.size_max() / 3).next_multiple_of(block) };
    let offset = base + rng.u64(..window);
    if rng.bool() { offset / block * block } else { offset }
}

fn change(rng: &mut Rng, model: &FileModel) -> FileChange {
    let shape = model.shape;
    let block = u64::from(shape.block_size);
    let offset = offset(rng, shape);
    let len = if rng.u8(..8) == 0 { rng.u64(1..200 * block) } else { rng.u64(1..3 * block) };
    match rng.u8(..100) {
        0 => FileChange::Truncate(offset),
        1..60 => FileChange::Write { offset, len, seed: rng.u8(..) },
        _ => {
            let mode = MODES[rng.usize(..MODES.len())];
            let keeps =
                matches!(mode, AllocateMode::UnwrittenKeepSize | AllocateMode::ZeroKeepSize);
            // A block map cannot have space past the end.
            let past_end = keeps && !shape.extents && offset + len > model.size;
            let mode = if past_end { AllocateMode::PunchHole } else { mode };
            FileChange::Allocate { offset, len, mode }
        }
    }
}

fn read_some(fs: &dyn FileSystem, ino: Ino, model: &FileModel, rng: &mut Rng) {
    let offset = offset(rng, model.shape);
    let mut buf = vec![0xaa; rng.usize(1..40_000)];
    let len = fs.read(ino, offset, &mut buf).unwrap();
    let expected = model.read(offset, buf.len());
    assert!(buf[..len] == expected[..], "read of {} at {offset}", buf.len());
}

/// Closes a file system, runs e2fsck, and opens it again.
///
/// Small blocks lead to trees with two index levels. If the file has space past its end, e2fsck 1.47.0 reports such a
/// tree as damaged, even one made by the kernel: for it the last index of the root ends at the size of the file.
/// Therefore the file system is reopened once and the space past the end is freed before the check.
fn judged(
    fs: Ext4,
    device: &Arc<FileDevice>,
    image: &Path,
    ino: Ino,
    model: &mut FileModel,
) -> Ext4 {
    let mut fs = fs;
    if has_deep_trees(model.shape) {
        fs.close().unwrap();
        fs = open(device);
        model.assert_same(&fs, ino, "opened again with space past the end");
        let to_its_end = FileChange::Truncate(model.size);
        to_its_end.apply(&fs, ino).unwrap();
        model.apply(&to_its_end);
    }
    fs.close().unwrap();
    check(image);
    open(device)
}

fn has_deep_trees(shape: FileParameters) -> bool {
    shape.extents && shape.block_size < 4096
}

fn run(shape: FileParameters, seed: u64) {
    let steps = effort(1_500, 1_500, 15_000);
    let mut rng = Rng::with_seed(seed);
    let dir = scratch();
    let image = dir.path().join("image");
    let device = make(&image, IMAGE_SIZE, shape);
    let mut fs = open(&device);
    let ino = create(&fs, "file");
    let mut model = FileModel::new(shape);
    for step in 1..=steps {
        let change = change(&mut rng, &model);
        let context = || format!("seed {seed}, step {step}, {change:?}");
        change.apply(&fs, ino).unwrap_or_else(|error| panic!("{}: {error}", context()));
        model.apply(&change);
        read_some(&fs, ino, &model, &mut rng);
        if step % STEPS_OPEN == 0 {
            model.assert_same(&fs, ino, &context());
            fs = judged(fs, &device, &image, ino, &mut model);
        }
    }
    model.assert_same(&fs, ino, "at the end");
    judged(fs, &device, &image, ino, &mut model).close().unwrap();
    model.assert_same_in_kernel(&image, "file");
}

/// Separate blocks past the end of the file that give a tree of two index levels with blocks of 1 KiB.
const PAST_END: u64 = 2_000;

#[test]
fn a_deep_tree_keeps_space_past_the_end() {
    require!(Tool("e2fsck"));
    let shape = SHAPES[0];
    let dir = scratch();
    let image = dir.path().join("image");
    let device = make(&image, 16 * MIB, shape);
    let fs = open(&device);
    let ino = create(&fs, "file");
    let mut model = FileModel::new(shape);
    let block = u64::from(shape.block_size);
    let write = FileChange::Write { offset: 0, len: 5 * block, seed: 1 };
    let mode = AllocateMode::UnwrittenKeepSize;
    let allocations = (0..PAST_END).map(|nth| FileChange::Allocate {
        offset: (10 + 2 * nth) * block,
        len: block,
        mode,
    });
    for change in std::iter::once(write).chain(allocations) {
        change.apply(&fs, ino).unwrap();
        model.apply(&change);
    }
    fs.close().unwrap();
    // The kernel reads the tree and has all of its space.
    model.assert_same_in_kernel(&image, "file");
    let fs = open(&device);
    let allocated = fs.attributes(ino).unwrap().blocks_512 * 512;
    assert!(allocated >= (5 + PAST_END) * block, "{allocated} bytes");
    judged(fs, &device, &image, ino, &mut model).close().unwrap();
}

fn run_all(shape: FileParameters) {
    require!(Tool("e2fsck"));
    for seed in 0..effort(1, 2, 100) {
        run(shape, seed);
    }
}

#[test]
fn extents_of_small_blocks() {
    run_all(SHAPES[0]);
}

#[test]
fn extents_of_large_blocks() {
    run_all(SHAPES[1]);
}

#[test]
fn block_map_of_small_blocks() {
    run_all(SHAPES[2]);
}

#[test]
fn block_map_of_large_blocks() {
    run_all(SHAPES[3]);
}
