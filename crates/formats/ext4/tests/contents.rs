//! Random changes of one file compared with a model of its contents and map. Finally e2fsck checks the image and the
//! kernel reads the file.

use crate::files;

use files::{FileChange, FileModel, FileParameters, MIB, SHAPES, check, create, make, open};
use proptest::prelude::*;
use testkit::{require, scratch};
use vfs::AllocateMode;

const IMAGE_SIZE: u64 = 48 * MIB;
/// Offsets are near one of these parts of the largest size, so that changes overlap.
const ANCHORS: u64 = 4;
const MODES: [AllocateMode; 5] = [
    AllocateMode::Unwritten,
    AllocateMode::UnwrittenKeepSize,
    AllocateMode::PunchHole,
    AllocateMode::Zero,
    AllocateMode::ZeroKeepSize,
];

fn offsets(shape: FileParameters) -> impl Strategy<Value = u64> {
    let near = 0_u64..200 * u64::from(shape.block_size);
    let block = u64::from(shape.block_size);
    (0..ANCHORS, near, any::<bool>()).prop_map(move |(anchor, within, aligned)| {
        let base = if anchor == 0 { 0 } else { (shape.size_max() >> (anchor * 3)) / block * block };
        base + if aligned { within / block * block } else { within }
    })
}

fn changes(shape: FileParameters) -> impl Strategy<Value = FileChange> {
    let block = u64::from(shape.block_size);
    let lengths = prop_oneof![4 => 1..4 * block, 1 => 1..100 * block];
    prop_oneof![
        5 => (offsets(shape), lengths.clone(), any::<u8>())
            .prop_map(|(offset, len, seed)| FileChange::Write { offset, len, seed }),
        1 => offsets(shape).prop_map(FileChange::Truncate),
        5 => (offsets(shape), lengths, 0..MODES.len())
            .prop_map(|(offset, len, mode)| FileChange::Allocate { offset, len, mode: MODES[mode] }),
    ]
}

/// Applies changes to a file and a model, which must agree after each.
fn run(shape: FileParameters, changes: &[FileChange]) {
    require!(Tool("e2fsck"));
    let dir = scratch();
    let image = dir.path().join("image");
    let device = make(&image, IMAGE_SIZE, shape);
    let fs = open(&device);
    let ino = create(&fs, "file");
    let mut model = FileModel::new(shape);
    for change in changes {
        if keeps_size_in_map(&model, change) {
            assert!(matches!(change.apply(&fs, ino), Err(vfs::Error::Unsupported(_))));
        } else {
            change.apply(&fs, ino).unwrap_or_else(|error| panic!("{change:?}: {error}"));
            model.apply(change);
        }
        let map = model.compare_map(&fs, ino);
        map.unwrap_or_else(|problem| panic!("after {change:?}: {problem}"));
    }
    model.assert_same(&fs, ino, "at the end");
    fs.close().unwrap();
    let fs = open(&device);
    model.assert_same(&fs, ino, "opened again");
    fs.close().unwrap();
    check(&image);
    model.assert_same_in_kernel(&image, "file");
}

/// Returns whether a change would need blocks past the end, which a block map cannot have.
fn keeps_size_in_map(model: &FileModel, change: &FileChange) -> bool {
    let keeps = |mode| matches!(mode, AllocateMode::UnwrittenKeepSize | AllocateMode::ZeroKeepSize);
    match *change {
        FileChange::Allocate { offset, len, mode } => {
            !model.shape.extents && keeps(mode) && offset + len > model.size
        }
        _ => false,
    }
}

fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: testkit::effort(8, 14, 2_000),
        max_shrink_iters: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

macro_rules! against_the_model {
    ($($name:ident: $shape:expr;)*) => {
        proptest! {
            #![proptest_config(cases())]
            $(#[test]
            fn $name(changes in prop::collection::vec(changes(SHAPES[$shape]), 1..120)) {

                run(SHAPES[$shape], &changes);
            })*
        }
    };
}

against_the_model! {
    extents_of_small_blocks: 0;
    extents_of_large_blocks: 1;
    block_map_of_small_blocks: 2;
    block_map_of_large_blocks: 3;
}
