//! Files that need every depth of block maps, and sizes that a format does not support.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::{Tree, require, scratch};

use crate::build::common::{build, build_command, fail, judge};

/// Creates a file with these pieces of 4 KiB and holes between them.
fn sparse(path: &Path, size: u64, pieces: impl Iterator<Item = u64>) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for offset in pieces {
        let piece: Vec<u8> = (0..512).flat_map(|at| (offset + at + 1).to_le_bytes()).collect();
        file.write_all_at(&piece, offset).unwrap();
    }
}

/// Returns the depth of a file's extent tree, from debugfs.
fn extent_depth(image: &Path, file: &str) -> u32 {
    let dump = testkit::debugfs(image, &format!("dump_extents {file}"));
    let first = dump.lines().nth(1).unwrap_or_default();
    // The output is "Level Entries ...", then " 0/ 2   1/  5 ...".
    first.split(['/', ' ']).filter(|word| !word.is_empty()).nth(1).unwrap().parse().unwrap()
}

#[test]
fn extent_trees_of_every_depth() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let directory = scratch();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    let comb = |name: &str, teeth: u64| {
        sparse(&source.join(name), teeth * 8192, (0..teeth).map(|tooth| tooth * 8192));
    };
    // An inode has room for 4 extents, a block of 1 KiB for 84 (83 with its checksum), one of 4 KiB
    // for 340. The limits are 4, 4 x 84, 4 x 340 and 4 x 84 x 84 extents.
    let cases = [
        ("four", 4, [0, 0]),
        ("five", 5, [1, 1]),
        ("some", 400, [2, 1]),
        ("many", 2000, [2, 2]),
        ("most", 29_000, [3, 2]),
    ];
    for (name, teeth, _) in cases {
        comb(name, teeth);
    }
    let tree = Tree::of(&source);
    let image = directory.path().join("image");
    for (at, block_size) in ["1K", "4K"].into_iter().enumerate() {
        build(&source, &image, &format!("--force --block-size {block_size}"));
        judge(&image, &tree);
        for (name, _, depths) in cases {
            assert_eq!(extent_depth(&image, name), depths[at], "{name}, blocks of {block_size}");
        }
    }
}

#[test]
fn indirect_blocks_of_every_level() {
    require!(Tool("e2fsck"), Mount("ext4"));
    let directory = scratch();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = directory.path().join("image");
    for block_size in [1024_u64, 2048, 4096] {
        // First bytes mapped by the single, double and triple indirect block.
        let per_block = block_size / 4;
        let single = 12 * block_size;
        let double = single + per_block * block_size;
        let triple = double + per_block * per_block * block_size;
        let pieces: Vec<u64> = [0, single, double, triple, triple + (1 << 30)]
            .into_iter()
            .map(|edge| edge.next_multiple_of(4096))
            .flat_map(|edge| [edge.saturating_sub(8192), edge, edge + (64 << 10)])
            .collect();
        let size = triple + (2 << 30) + 5;
        sparse(&source.join("far"), size, pieces.iter().copied());
        sparse(&source.join("hole"), size, std::iter::empty());
        sparse(&source.join("dense"), 3 << 20, (0..768).map(|at| at * 4096));
        sparse(&source.join("middle"), double + (1 << 20), std::iter::once(double + 4096));
        build(&source, &image, &format!("-O ^extent,^64bit --force --block-size {block_size}"));
        judge(&image, &Tree::of(&source));
    }
}

#[test]
fn large_sparse_files() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    let pieces = [0, 1 << 31, (1 << 32) - 4096, 1 << 32, (5 << 30) - 4096];
    sparse(&source.join("five-gib"), 5 << 30, pieces.into_iter());
    let tib = 1 << 40;
    let pieces = [5 << 30, 2 * tib - 8192, 2 * tib, 3 * tib];
    sparse(&source.join("three-tib"), 3 * tib + 4096, pieces.into_iter());
    let image = directory.path().join("image");
    build(&source, &image, "");
    judge(&image, &Tree::of(&source));
    // Far less is read and written than the file sizes.
    assert!(fs::metadata(&image).unwrap().len() < 64 << 20);
    build(&source, &image, "--fs xfs --force");
    judge(&image, &Tree::of(&source));
    assert!(fs::metadata(&image).unwrap().len() <= 300 << 20);
}

#[test]
fn files_of_many_extents_in_xfs() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    // An inode of 512 bytes has room for about 20 extents, a block of 1 KiB for 59.
    for teeth in [3, 19, 25, 400, 29_000] {
        let pieces = (0..teeth).map(|tooth| tooth * 8192);
        sparse(&source.join(format!("comb-{teeth}")), teeth * 8192, pieces);
    }
    let (image, tree) = (directory.path().join("image"), Tree::of(&source));
    let all = ["", "--block-size 1K -O ^nrext64,^rmapbt", "--block-size 1K"];
    for options in all.into_iter().take(testkit::effort(2, 3, 3)) {
        build(&source, &image, &format!("--fs xfs --force {options}"));
        judge(&image, &tree);
    }
}

/// The largest file: 2^32 - 1 blocks with extents, or the limit of three indirect levels.
#[test]
fn files_that_are_too_large() {
    require!(Tool("e2fsck"), Mount("ext4"));
    let directory = scratch();
    let source = directory.path().join("source");
    fs::create_dir(&source).unwrap();
    let image = directory.path().join("image");
    let mapped_1k = (12 + 256 + 256 * 256 + 256 * 256 * 256) * 1024;
    for (largest, options) in [
        (((1 << 32) - 1) * 1024, "--block-size 1K"),
        (mapped_1k, "--block-size 1K -O ^extent,^64bit"),
    ] {
        File::create(source.join("edge")).unwrap().set_len(largest).unwrap();
        build(&source, &image, &format!("--force {options}"));
        judge(&image, &Tree::of(&source));
        fs::remove_file(&image).unwrap();
        File::create(source.join("edge")).unwrap().set_len(largest + 1).unwrap();
        let text = fail(&mut build_command(&source, &image, options), 4);
        assert!(text.contains("edge"), "{text}");
        assert!(!image.exists());
    }
}
