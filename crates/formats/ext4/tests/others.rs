//! Files created by mke2fs and the kernel: with inline data, deep trees, and garbage in unused bytes.

use crate::files;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use files::{FileChange, FileModel, FileParameters, MIB, SHAPES, check, open};
use testkit::{Mke2fs, populate_with_kernel, require, scratch};
use vfs::{AllocateMode, ExtentPlace, FileSystem, Ino};

fn device(image: &Path) -> Arc<FileDevice> {
    let file = File::options().read(true).write(true).open(image).unwrap();
    Arc::new(FileDevice::new(file).unwrap())
}

/// Changes that convert an inline file to one with blocks.
fn changes() -> Vec<FileChange> {
    let allocate = |mode, offset, len| FileChange::Allocate { offset, len, mode };
    vec![
        FileChange::Write { offset: 10, len: 5, seed: 3 },
        FileChange::Write { offset: 5000, len: 3000, seed: 3 },
        FileChange::Truncate(0),
        FileChange::Truncate(7),
        FileChange::Truncate(100_000),
        allocate(AllocateMode::Unwritten, 0, 9000),
        allocate(AllocateMode::UnwrittenKeepSize, 8192, 9000),
        allocate(AllocateMode::PunchHole, 3, 5),
        allocate(AllocateMode::PunchHole, 0, 5000),
        allocate(AllocateMode::Zero, 3, 9000),
        allocate(AllocateMode::ZeroKeepSize, 0, 4),
    ]
}

/// Returns the inode of a name in the root.
fn find(fs: &dyn FileSystem, name: &str) -> Ino {
    fs.lookup(fs.root(), name.as_bytes()).unwrap()
}

/// Returns the location of a file's first run.
fn first_place(fs: &dyn FileSystem, ino: Ino) -> ExtentPlace {
    let mut place = None;
    fs.extent_map(ino, 0, 1, &mut |run| {
        place = Some(run.place);
        std::ops::ControlFlow::Break(())
    })
    .unwrap();
    place.unwrap()
}

#[test]
fn inline_data_becomes_blocks() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let dir = scratch();
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    let contents = FileChange::Write { offset: 0, len: 100, seed: 1 };
    std::fs::write(source.join("file"), files::bytes_of(100, 1)).unwrap();
    let image = dir.path().join("image");
    for features in ["inline_data", "inline_data,^extents,^64bit"] {
        let shape = FileParameters { block_size: 4096, extents: features == "inline_data" };
        for change in changes() {
            Mke2fs::new("ext4")
                .block_size(4096)
                .features(features)
                .populate(&source)
                .create(&image, 32 * MIB);
            let device = device(&image);
            let fs = open(&device);
            let ino = find(&fs, "file");
            fs.set_xattr(ino, b"user.kept", b"value").unwrap();
            let mut model = FileModel::new(shape);
            model.apply(&contents);
            assert_eq!(first_place(&fs, ino), ExtentPlace::Inline);
            match change.apply(&fs, ino) {
                Ok(()) => model.apply(&change),
                // Space past the end, which a block map cannot have.
                Err(error) => {
                    assert!(!shape.extents && matches!(error, vfs::Error::Unsupported(_)));
                    fs.close().unwrap();
                    check(&image);
                    continue;
                }
            }
            model.assert_same(&fs, ino, &format!("{change:?}"));
            assert_eq!(fs.get_xattr(ino, b"user.kept").unwrap(), b"value");
            fs.close().unwrap();
            check(&image);
            model.assert_same_in_kernel(&image, "file");
        }
    }
}

/// Garbage after the end of a file in its last block stays hidden when the file grows.
#[test]
fn garbage_behind_the_end_stays_hidden() {
    require!(Tool("e2fsck"));
    let grow = |offset, len, mode| FileChange::Allocate { offset, len, mode };
    let growths = [
        FileChange::Truncate(900),
        FileChange::Truncate(1_000_000),
        FileChange::Write { offset: 700, len: 3, seed: 5 },
        FileChange::Write { offset: 70_000, len: 3, seed: 5 },
        grow(600, 10, AllocateMode::Unwritten),
        grow(60_000, 10, AllocateMode::Unwritten),
        grow(600, 10, AllocateMode::Zero),
        grow(0, 9000, AllocateMode::Zero),
    ];
    for shape in SHAPES {
        for growth in &growths {
            let dir = scratch();
            let image = dir.path().join("image");
            let device = files::make(&image, 16 * MIB, shape);
            let fs = open(&device);
            let ino = files::create(&fs, "file");
            let mut model = FileModel::new(shape);
            let first = FileChange::Write { offset: 0, len: 500, seed: 1 };
            first.apply(&fs, ino).unwrap();
            model.apply(&first);
            let ExtentPlace::Device(at) = first_place(&fs, ino) else { panic!("no data") };
            device.file().write_all_at(&[0xdd; 524], at + 500).unwrap();
            growth.apply(&fs, ino).unwrap();
            model.apply(growth);
            model.assert_same(&fs, ino, &format!("{shape:?}, {growth:?}"));
            fs.close().unwrap();
            check(&image);
            model.assert_same_in_kernel(&image, "file");
        }
    }
}

/// Writes every second block of a file.
fn every_second_block(write: impl Fn(u64, &[u8]), blocks: u64, model: &mut FileModel) {
    let block = u64::from(model.shape.block_size);
    for number in 0..blocks {
        let change =
            FileChange::Write { offset: number * 2 * block, len: block, seed: number as u8 };
        write(number * 2 * block, &files::bytes_of(block, number as u8));
        model.apply(&change);
    }
}

/// Holes to punch in a tree with several levels.
fn cuts(block: u64) -> Vec<FileChange> {
    let punch = |offset: u64, len: u64| FileChange::Allocate {
        offset: offset * block,
        len: len * block,
        mode: AllocateMode::PunchHole,
    };
    vec![
        punch(100, 1),
        punch(500, 1500),
        punch(0, 300),
        punch(3001, 7),
        FileChange::Truncate(4500 * block + 3),
        punch(2000, 2400),
        FileChange::Truncate(301 * block),
        FileChange::Truncate(0),
    ]
}

#[test]
fn deep_trees_of_the_kernel_are_cut() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for features in ["extents", "^extents,^64bit"] {
        let shape = FileParameters { block_size: 1024, extents: features == "extents" };
        let dir = scratch();
        let image = dir.path().join("image");
        Mke2fs::new("ext4").block_size(1024).features(features).create(&image, 64 * MIB);
        let mut model = FileModel::new(shape);
        populate_with_kernel(&image, "ext4", |root| {
            let file = File::create(root.join("file")).unwrap();
            every_second_block(|at, data| file.write_all_at(data, at).unwrap(), 3000, &mut model);
        });
        let device = device(&image);
        for cut in cuts(1024) {
            let fs = open(&device);
            let ino = find(&fs, "file");
            cut.apply(&fs, ino).unwrap();
            model.apply(&cut);
            model.assert_same(&fs, ino, &format!("{cut:?}"));
            fs.close().unwrap();
            check(&image);
        }
        model.assert_same_in_kernel(&image, "file");
    }
}

#[test]
fn the_kernel_cuts_deep_trees() {
    require!(Tool("e2fsck"), Mount("ext4"));
    for shape in [SHAPES[0], SHAPES[2]] {
        let dir = scratch();
        let image = dir.path().join("image");
        let device = files::make(&image, 64 * MIB, shape);
        let fs = open(&device);
        let ino = files::create(&fs, "file");
        let mut model = FileModel::new(shape);
        every_second_block(|at, data| fs.write(ino, at, data, None).unwrap(), 3000, &mut model);
        fs.close().unwrap();
        check(&image);
        model.assert_same_in_kernel(&image, "file");
        let size = 2500 * 1024 + 9;
        populate_with_kernel(&image, "ext4", |root| {
            let file = File::options().write(true).open(root.join("file")).unwrap();
            file.set_len(size).unwrap();
            file.write_all_at(&files::bytes_of(5000, 7), 1_000_001).unwrap();
        });
        model.apply(&FileChange::Truncate(size));
        model.apply(&FileChange::Write { offset: 1_000_001, len: 5000, seed: 7 });
        check(&image);
        let fs = open(&device);
        model.assert_same(&fs, ino, "after the kernel");
        fs.close().unwrap();
    }
}
