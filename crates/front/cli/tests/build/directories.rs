//! Directories with many or difficult names.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ext4::format::hash::{HashVersion, NameHasher};
use testkit::{Ignore, Tree, require, scratch};

use crate::build::common::{build, build_command, fail, judge, judge_but, mount};

/// Creates empty files in a new directory `source/many`.
fn many(source: &Path, names: impl Iterator<Item = String>) {
    let many = source.join("many");
    fs::create_dir_all(&many).unwrap();
    for name in names {
        File::create(many.join(name)).unwrap();
    }
}

/// Returns the number of index levels below the root of a directory's index, from debugfs.
fn index_levels(image: &Path, directory: &str) -> u32 {
    let dump = testkit::debugfs(image, &format!("htree_dump {directory}"));
    let line = dump.lines().find_map(|line| line.trim().strip_prefix("Indirect levels: "));
    line.unwrap_or_else(|| panic!("{directory} has no index: {:.200}", dump)).parse().unwrap()
}

/// Returns names that need a two-level index with 1 KiB blocks, and with more names also with 4 KiB
/// blocks: fewer long names or more short ones.
fn names_for_two_levels() -> (usize, Box<dyn Iterator<Item = String>>) {
    let short = |count: usize| (count..100_000).map(|n| format!("f{n}"));
    let long = |count: usize| (count..20_000).map(|n| format!("f{n}{}", "x".repeat(220)));
    let few = testkit::effort(true, true, false);
    if few { (8_000, Box::new(long(8_000))) } else { (20_000, Box::new(short(20_000))) }
}

#[test]
fn many_names() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let directory = scratch();
    let source = directory.path().join("source");
    let image = directory.path().join("image");
    let (count, more) = names_for_two_levels();
    many(&source, (0..count).map(|n| format!("a name of usual length {n:06}")));
    let tree = Tree::of(&source);
    for (options, levels) in [("--block-size 1K", 1), ("", 0), ("-O inline_data", 0)] {
        build(&source, &image, &format!("--force {options}"));
        assert_eq!(index_levels(&image, "/many"), levels, "{options}");
        judge(&image, &tree);
    }
    build(&source, &image, "--force -O ^dir_index");
    judge(&image, &tree);

    many(&source, more);
    let tree = Tree::of(&source);
    for (options, levels) in [("--block-size 1K", 1), ("", 1)] {
        build(&source, &image, &format!("--force {options}"));
        assert_eq!(index_levels(&image, "/many"), levels, "{options}");
        judge(&image, &tree);
    }
}

/// Three index levels with 1 KiB blocks. Two levels, the limit without large_dir, end at about
/// 15,000 leaves of three long names each.
#[test]
fn names_for_three_levels() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let directory = scratch();
    let source = directory.path().join("source");
    let image = directory.path().join("image");
    many(&source, (0..48_000).map(|n| format!("{n:06}{}", "x".repeat(249))));
    let options = "--block-size 1K -O large_dir";
    build(&source, &image, options);
    assert_eq!(index_levels(&image, "/many"), 2);
    judge(&image, &Tree::of(&source));

    fs::remove_file(&image).unwrap();
    let text = fail(&mut build_command(&source, &image, "--block-size 1K"), 4);
    assert!(text.contains("many/") && text.contains("large_dir"), "{text}");
    assert!(!image.exists());
}

#[test]
fn many_names_in_xfs() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let source = directory.path().join("source");
    let image = directory.path().join("image");
    let count = testkit::effort(8_000, 8_000, 20_000);
    many(&source, (0..count).map(|n| format!("a name of usual length {n:06}")));
    for n in 0..2000 {
        fs::create_dir_all(source.join(format!("directories/{n}"))).unwrap();
    }
    let tree = Tree::of(&source);
    let all = ["--block-size 1K", "", "--dir-block-size 64K", "-O ^parent", "-O ascii-ci"];
    for options in all.into_iter().take(testkit::effort(2, 3, all.len())) {
        build(&source, &image, &format!("--fs xfs --force {options}"));
        // Some kernels are built without case-insensitive directories.
        if options.contains("ascii-ci") {
            testkit::judge(&image);
        } else {
            judge(&image, &tree);
        }
    }
    many(&source, (count..count * 5 / 2).map(|n| format!("f{n}")));
    build(&source, &image, "--fs xfs --force");
    judge(&image, &Tree::of(&source));
}

/// One more subdirectory than the kernel allows without dir_nlink.
const SUBDIRECTORIES_TOO_MANY: u32 = 65_000;

#[test]
fn many_subdirectories() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    let directory = scratch();
    let source = directory.path().join("source");
    let image = directory.path().join("image");
    let is_quick = testkit::effort(true, true, false);
    for n in 0..SUBDIRECTORIES_TOO_MANY + 1000 {
        fs::create_dir_all(source.join(format!("many/{n}"))).unwrap();
    }
    build(&source, &image, "--block-size 1K");
    // A link count of 1 means more links than the field can count.
    let nlink = 1;
    if is_quick {
        testkit::judge(&image);
        let mount = mount(&image);
        let many = mount.path().join("many");
        assert_eq!(fs::metadata(&many).unwrap().nlink(), nlink);
        assert_eq!(fs::read_dir(&many).unwrap().count(), SUBDIRECTORIES_TOO_MANY as usize + 1000);
    } else {
        let mut expected = Tree::of(&source);
        expected.nodes.get_mut(b"many".as_slice()).unwrap().nlink = nlink;
        judge(&image, &expected);
    }

    let text = fail(&mut build_command(&source, &image, "--force -O ^dir_nlink"), 4);
    assert!(text.contains("many/") && text.contains("link"), "{text}");
    for n in SUBDIRECTORIES_TOO_MANY - 2..SUBDIRECTORIES_TOO_MANY + 1000 {
        fs::remove_dir(source.join(format!("many/{n}"))).unwrap();
    }
    build(&source, &image, "--force --block-size 1K -O ^dir_nlink");
    if is_quick {
        testkit::judge(&image);
    } else {
        judge_but(&image, &Tree::of(&source), &Ignore::default());
    }
}

/// Six names with equal hashes fill two leaves of 1 KiB.
#[test]
fn names_of_equal_hash() {
    require!(Tool("e2fsck"), Tool("debugfs"), Mount("ext4"));
    const HASH_SEED: &str = "12345678-9abc-def0-1122-334455667788";
    // The same seed as little-endian words.
    const SEED: [u32; 4] = [0x7856_3412, 0xf0de_bc9a, 0x4433_2211, 0x8877_6655];
    let hasher = NameHasher { version: HashVersion::HalfMd4, unsigned: false, seed: SEED };
    let equal: Vec<_> =
        EQUAL_HASHES.iter().map(|n| format!("{}{n:08x}", "c".repeat(240))).collect();
    let major = hasher.hash(equal[0].as_bytes()).major;
    assert!(equal.iter().all(|name| hasher.hash(name.as_bytes()).major == major));

    let directory = scratch();
    let source = directory.path().join("source");
    let image = directory.path().join("image");
    let options = format!("--force --block-size 1K --hash-seed {HASH_SEED}");
    for others in [0, 3, 100, 3000] {
        many(&source, equal.iter().cloned());
        many(&source, (0..others).map(|n| format!("{n:05}{}", "x".repeat(200))));
        build(&source, &image, &options);
        judge(&image, &Tree::of(&source));
        let superblock = testkit::debugfs(&image, "show_super_stats -h");
        assert!(superblock.contains(HASH_SEED), "{superblock}");
    }
}

/// The differing parts of six names with equal half-MD4 hashes, found by counting the hashes of
/// 2^28 names.
const EQUAL_HASHES: [u32; 6] =
    [0x0500_dda7, 0x07d2_88c0, 0x08ff_a877, 0x09bf_34e1, 0x0a52_27c8, 0x0f39_0072];
