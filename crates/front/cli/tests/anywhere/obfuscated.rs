//! Copies of metadata with random names (`bundle --obfuscate`).

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use testkit::{require, scratch};

use super::{ok, run};

/// Part of each name, target and value of the original.
const SECRET: &str = "seCReT";

/// Creates a tree whose names, targets and contents all contain the secret, except for short ones.
fn tree(dir: &Path) {
    let root = dir.join("tree");
    let large = root.join(format!("{SECRET}-large"));
    fs::create_dir_all(&large).unwrap();
    for number in 0..3000 {
        fs::write(large.join(format!("{number}-{SECRET}-name.txt")), "").unwrap();
    }
    let small = root.join(format!("{SECRET}-small"));
    fs::create_dir_all(&small).unwrap();
    for name in ["a", "b", "ab", "ac", "abc", "abcd", "abcde"] {
        fs::write(small.join(name), SECRET.repeat(2000)).unwrap();
    }
    fs::hard_link(small.join("abc"), root.join(format!("{SECRET}-link"))).unwrap();
    symlink(format!("../{SECRET}"), small.join(format!("{SECRET}-short"))).unwrap();
    symlink(format!("{SECRET}/").repeat(70), small.join(format!("{SECRET}-long"))).unwrap();
    let medium = root.join(format!("{SECRET}-medium"));
    fs::create_dir_all(&medium).unwrap();
    for number in 0..60 {
        fs::write(medium.join(format!("{SECRET}-{number}")), "").unwrap();
    }
}

/// Creates an image of the tree, with attributes and removed names.
fn original(dir: &Path, options: &str) {
    let line = format!("build tree image {options} --label {SECRET} --free 20M");
    assert!(run(dir, &line).status.success(), "{line}");
    let file = format!("/{SECRET}-small/abc");
    // They fit into one block.
    let attributes = if options.contains("1K") { 5 } else { 30 };
    for number in 0..attributes {
        let value = SECRET.repeat(10);
        let line = format!("setfattr image {file} -n user.{SECRET}.{number} -v {value}");
        assert!(run(dir, &line).status.success(), "{line}");
    }
    let large = SECRET.repeat(if options.contains("xfs") { 900 } else { 50 });
    ok(dir, &format!("setfattr image /{SECRET}-small -n user.{SECRET}.large -v {large}"));
    ok(dir, &format!("setfattr image /{SECRET}-small/ab -n user.{SECRET} -v {SECRET}"));
    ok(dir, &format!("rm image /{SECRET}-medium/{SECRET}-7 /{SECRET}-large/77-{SECRET}-name.txt"));
}

/// Returns the number of files and directories.
fn count(dir: &Path, image: &str) -> usize {
    ok(dir, &format!("find {image}")).split(|byte| *byte == b'\n').count()
}

fn is_in(bytes: &[u8], word: &[u8]) -> bool {
    const PART: usize = 4096;
    (0..bytes.len()).step_by(PART).any(|at| {
        let part = &bytes[at..bytes.len().min(at + PART + word.len())];
        !disk::is_zero(part) && part.windows(word.len()).any(|window| window == word)
    })
}

/// Returns the inode number and the flags of a file of an ext4 image, as debugfs shows them.
fn flags(dir: &Path, image: &str, file: &str) -> (String, String) {
    let mut command = testkit::command("debugfs");
    let output = command.args(["-R", &format!("stat {file}"), image]).current_dir(dir).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let word = |after: &str| {
        let (_, rest) = text.split_once(after).expect(&text);
        rest.split_whitespace().next().unwrap().to_owned()
    };
    (word("Inode: "), word("Flags: "))
}

#[test]
fn directories_keep_their_index() {
    require!(Tool("debugfs"));
    let dir = scratch();
    tree(dir.path());
    original(dir.path(), "--fs ext4");
    ok(dir.path(), "bundle --obfuscate image copy");
    let (ino, old) = flags(dir.path(), "image", &format!("/{SECRET}-large"));
    let (_, new) = flags(dir.path(), "copy", &format!("<{ino}>"));
    // EXT4_EXTENTS_FL and EXT4_INDEX_FL.
    assert_eq!((&*old, &*new), ("0x81000", "0x81000"));
}

/// Names of all lengths, and more short names than leaves.
#[test]
fn large_directories_keep_an_index_of_several_levels() {
    require!(Tool("debugfs"), Tool("e2fsck"));
    let dir = scratch();
    let large = dir.path().join("tree/large");
    fs::create_dir_all(&large).unwrap();
    let long = (0..12_000).map(|number| format!("{number}-{SECRET}-{}", "x".repeat(number % 30)));
    let short = (0..1500).map(|number| format!("{number}"));
    let names: Vec<String> = long.chain(short).collect();
    names.iter().for_each(|name| drop(fs::File::create(large.join(name)).unwrap()));
    assert!(run(dir.path(), "build tree image --fs ext4 --block-size 1K").status.success());
    let said = ok(dir.path(), "bundle --obfuscate image copy");
    assert_eq!(said, b"copy has the metadata with random names\n");
    let (ino, old) = flags(dir.path(), "image", "/large");
    assert_eq!((&*old, flags(dir.path(), "copy", &format!("<{ino}>")).1), ("0x81000", old.clone()));
    let mut command = testkit::command("debugfs");
    let command = command.args(["-R", &format!("htree_dump <{ino}>"), "copy"]);
    let output = command.current_dir(dir.path()).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("Indirect levels: 1"));
    // It compares the hash of each name with the range of its leaf.
    testkit::judge(dir.path().join("copy"));
    // Short names contain any bytes.
    let found = ok(dir.path(), "find copy --type f -0");
    let new = found.split(|byte| *byte == 0).filter_map(|path| path.rsplit(|b| *b == b'/').next());
    assert_eq!(new.clone().filter(|name| !name.is_empty()).count(), names.len());
    let kept: Vec<&[u8]> =
        new.filter(|new| new.len() > 3 && names.iter().any(|old| old.as_bytes() == *new)).collect();
    assert!(kept.is_empty(), "{kept:?}");
}

#[test]
fn nothing_of_the_original_is_in_a_copy_with_random_names() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    let dir = scratch();
    tree(dir.path());
    for options in ["--fs ext4", "--fs ext4 --block-size 1K", "--fs xfs --small"] {
        original(dir.path(), options);
        let said = ok(dir.path(), "bundle --obfuscate image copy");
        assert_eq!(said, b"copy has the metadata with random names\n", "{options}");
        let (image, copy) = (dir.path().join("image"), dir.path().join("copy"));
        assert!(is_in(&fs::read(&image).unwrap(), SECRET.as_bytes()), "{options}");
        assert!(!is_in(&fs::read(&copy).unwrap(), SECRET.as_bytes()), "{options}");
        testkit::judge(&copy);
        let (old, new) = (count(dir.path(), "image"), count(dir.path(), "copy"));
        assert!(old > 3000 && old == new, "{options}: {old} and {new}");
        let (image, copy) = (fs::metadata(image).unwrap(), fs::metadata(&copy).unwrap());
        // The log of XFS is written.
        let is_sparse = copy.blocks() * 512 < copy.len() / 2;
        assert!(copy.len() <= image.len() && is_sparse, "{options}");
        // An existing file is not replaced.
        let refused = run(dir.path(), "bundle --obfuscate image copy");
        assert!(!refused.status.success() && !refused.stderr.is_empty(), "{options}");
        for name in ["image", "copy"] {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
    }
}
