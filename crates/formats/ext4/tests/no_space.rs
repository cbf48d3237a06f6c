//! Changes of a file with almost no free space. Each change is complete, or the file, its map and the free space stay
//! the same.

use crate::files;

use files::{FileChange, FileModel, FileParameters, MIB, SHAPES, check, create, make, open};
use testkit::{require, scratch};
use vfs::{AllocateMode, FileSystem, Ino};

const IMAGE_SIZE: u64 = 16 * MIB;
/// Blocks of the long runs at the start of the file: written ones, then unwritten ones.
const LONG: u64 = 60;
/// Maximum number of free blocks to test: more than any change needs.
const FREE_MAX: u64 = 14;

/// Changes in units of blocks and half blocks.
fn changes(shape: FileParameters, after: u64) -> Vec<FileChange> {
    let block = u64::from(shape.block_size);
    let write = |at: u64, len: u64| FileChange::Write { offset: at, len, seed: 9 };
    let allocate = |mode, at: u64, len: u64| FileChange::Allocate { offset: at, len, mode };
    let mut changes = vec![
        write(after * block, 3 * block),
        write((2 * LONG + 4) * block + block / 2, 6 * block),
        write((LONG - 2) * block + 7, 4 * block),
        write((LONG + 20) * block + block / 2, block),
        write((after + 100_000) * block, 10),
        FileChange::Truncate((LONG + 5) * block + 5),
        FileChange::Truncate((after + 50) * block),
        FileChange::Truncate(0),
    ];
    for mode in [AllocateMode::Unwritten, AllocateMode::PunchHole, AllocateMode::Zero] {
        changes.push(allocate(mode, 20 * block + 5, 5 * block));
        changes.push(allocate(mode, (LONG + 20) * block, 7 * block));
        changes.push(allocate(mode, (2 * LONG + 3) * block + 9, 8 * block));
        changes.push(allocate(mode, after * block, 5 * block));
    }
    changes
}

/// Changes that create a file with a tree or map of a certain size: long runs, then every second block.
fn fragmented(shape: FileParameters, pieces: u64) -> Vec<FileChange> {
    let block = u64::from(shape.block_size);
    let mut all = vec![
        FileChange::Write { offset: 0, len: LONG * block, seed: 1 },
        FileChange::Allocate {
            offset: LONG * block,
            len: LONG * block,
            mode: AllocateMode::Unwritten,
        },
    ];
    for piece in 0..pieces {
        let offset = (2 * LONG + 1 + 2 * piece) * block;
        all.push(FileChange::Write { offset, len: block, seed: piece as u8 });
    }
    all
}

/// Allocates all space except `left` blocks. The map of the filler may take a few more.
fn fill(fs: &dyn FileSystem, filler: Ino, shape: FileParameters, left: u64) {
    let block = u64::from(shape.block_size);
    let mut size = 0;
    for step in [256, 16, 1] {
        while fs.allocate(filler, size, step * block, AllocateMode::Unwritten).is_ok() {
            size += step * block;
        }
    }
    let full = fs.statfs().unwrap().blocks_free;
    fs.truncate(filler, size - left * block, None).unwrap();
    assert!(fs.statfs().unwrap().blocks_free >= full + left);
}

/// Makes one change with `left` free blocks. Returns true if there was enough space.
fn attempt(shape: FileParameters, pieces: u64, change: &FileChange, left: u64) -> bool {
    let dir = scratch();
    let image = dir.path().join("image");
    let device = make(&image, IMAGE_SIZE, shape);
    let fs = open(&device);
    let (ino, filler) = (create(&fs, "file"), create(&fs, "filler"));
    let mut model = FileModel::new(shape);
    for step in fragmented(shape, pieces) {
        step.apply(&fs, ino).unwrap();
        model.apply(&step);
    }
    fill(&fs, filler, shape, left);
    let context = format!("{shape:?}, {pieces} pieces, {left} left, {change:?}");
    let done = model.change_if_space(&fs, ino, change, &context);
    fs.close().unwrap();
    check(&image);
    done
}

/// Asserts that each change fails without effect until there is enough space, and then succeeds. Returns the number of
/// failures.
fn run(shape: FileParameters, pieces: u64) -> usize {
    let mut refused = 0;
    for change in changes(shape, 2 * LONG + 2 * pieces + 1) {
        let mut left = 0;
        while !attempt(shape, pieces, &change, left) {
            refused += 1;
            left += 1;
            assert!(left <= FREE_MAX, "{change:?} never has room");
        }
    }
    refused
}

#[test]
fn extent_trees_of_every_fill() {
    require!(Tool("e2fsck"));
    // With the root full and not, with a leaf full and not, and with two leaves.
    for pieces in [1, 2, 81, 82, 83, 140] {
        let refused = run(SHAPES[0], pieces);
        assert!(refused > 20, "{pieces}: {refused}");
    }
}

#[test]
fn block_maps() {
    require!(Tool("e2fsck"));
    for pieces in [1, 70] {
        let refused = run(SHAPES[2], pieces);
        assert!(refused > 20, "{pieces}: {refused}");
    }
}
