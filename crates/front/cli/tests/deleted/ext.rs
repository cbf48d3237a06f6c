//! ext2, ext3 and ext4: files removed by the kernel and by this program.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use testkit::{KernelMount, Mke2fs, MountOptions};

use super::{Deleted, contents, done};

/// Files with known contents, and their inode numbers.
struct Known {
    one: u64,
    two: u64,
    scattered: u64,
}

const LEN_ONE: usize = 100_000;
const LEN_TWO: usize = 3_000_001;
const BLOCKS_SCATTERED: u64 = 60;

/// Makes files, and removes them in a second mount.
fn remove_with_kernel(image: &Path, fs_type: &str, block_size: u64) -> Known {
    let ino = |path: &Path| fs::metadata(path).unwrap().ino();
    let mut known = Known { one: 0, two: 0, scattered: 0 };
    testkit::populate_with_kernel(image, fs_type, |top| {
        fs::create_dir(top.join("d")).unwrap();
        fs::create_dir(top.join("gone")).unwrap();
        fs::write(top.join("gone/inner"), "inner").unwrap();
        fs::write(top.join("d/one"), contents(1, LEN_ONE)).unwrap();
        fs::write(top.join("d/two"), contents(2, LEN_TWO)).unwrap();
        for number in 0..40 {
            fs::write(top.join(format!("d/other-{number}")), "other").unwrap();
        }
        let scattered = File::create(top.join("scattered")).unwrap();
        let between = File::create(top.join("between")).unwrap();
        let bytes = contents(3, (BLOCKS_SCATTERED * block_size) as usize);
        for (nth, block) in bytes.chunks(block_size as usize).enumerate() {
            scattered.write_all_at(block, nth as u64 * block_size).unwrap();
            scattered.sync_all().unwrap();
            between.write_all_at(block, nth as u64 * block_size).unwrap();
            between.sync_all().unwrap();
        }
        known.one = ino(&top.join("d/one"));
        known.two = ino(&top.join("d/two"));
        known.scattered = ino(&top.join("scattered"));
    });
    testkit::populate_with_kernel(image, fs_type, |top| {
        for name in ["d/one", "d/two", "d/other-7", "scattered", "gone/inner"] {
            fs::remove_file(top.join(name)).unwrap();
        }
        fs::remove_dir(top.join("gone")).unwrap();
        fs::rename(top.join("d/other-8"), top.join("d/renamed")).unwrap();
    });
    known
}

#[track_caller]
fn kernel_removals_are_recovered(fs_type: &'static str, block_size: u32, features: &str) {
    let home = testkit::scratch();
    let image = home.path().join("image");
    let mut plan = Mke2fs::new(fs_type).block_size(block_size);
    if !features.is_empty() {
        plan = plan.features(features);
    }
    plan.create(&image, 96 << 20);
    let known = remove_with_kernel(&image, fs_type, block_size.into());
    let deleted = Deleted::of(&image, "");
    let scattered = contents(3, (BLOCKS_SCATTERED * u64::from(block_size)) as usize);
    for (ino, expected) in [
        (known.one, contents(1, LEN_ONE)),
        (known.two, contents(2, LEN_TWO)),
        (known.scattered, scattered),
    ] {
        assert_eq!(deleted.certainty_of(ino, &expected), "intact", "{fs_type}, inode {ino}");
    }
    let paths = deleted.paths();
    for path in ["/d/one", "/d/two", "/d/other-7", "/scattered", "/gone", "/gone/inner"] {
        assert!(paths.contains(path), "{path} in {paths:?}");
    }
    assert!(!paths.contains("/d/renamed") && !paths.contains("/d/other-6"), "{paths:?}");
    let found: BTreeSet<u64> =
        deleted.files.iter().filter_map(|file| file["inode"].as_u64()).collect();
    for ino in inodes_of_fls(&image) {
        assert!(found.contains(&ino), "fls lists inode {ino}, of {found:?}");
    }
}

/// Returns the deleted inodes that `fls` lists.
fn inodes_of_fls(image: &Path) -> Vec<u64> {
    let output = testkit::command("fls").args(["-r", "-d", "-p"]).arg(image).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    // `-/r * 13: $OrphanFiles/OrphanFile-13`
    let number = |line: &str| line.split('*').nth(1)?.split([':', '(']).next()?.trim().parse().ok();
    let numbers: Vec<u64> = text.lines().filter_map(number).filter(|ino| *ino > 10).collect();
    assert!(numbers.len() > 4, "{text}");
    numbers
}

#[test]
fn files_with_extents_are_recovered_from_the_journal() {
    require!(Tool("mke2fs"), Tool("fls"), Mount("ext4"));
    kernel_removals_are_recovered("ext4", 4096, "");
    kernel_removals_are_recovered("ext4", 1024, "^metadata_csum");
}

#[test]
fn files_with_block_maps_are_recovered_from_the_journal() {
    require!(Tool("mke2fs"), Tool("fls"), Mount("ext3"));
    kernel_removals_are_recovered("ext3", 4096, "");
    kernel_removals_are_recovered("ext3", 1024, "");
}

#[test]
fn extundelete_recovers_no_file_that_is_missing_here() {
    require!(Tool("mke2fs"), Tool("extundelete"), Mount("ext3"));
    let home = testkit::scratch();
    let image = home.path().join("image");
    Mke2fs::new("ext3").block_size(4096).create(&image, 96 << 20);
    remove_with_kernel(&image, "ext3", 4096);
    let deleted = Deleted::of(&image, "");
    let copy = home.path().join("copy");
    testkit::copy_image(&image, &copy);
    let mut command = testkit::command("extundelete");
    let output = command.current_dir(home.path()).arg("--restore-all").arg(&copy).output().unwrap();
    let mut compared = 0;
    for entry in fs::read_dir(home.path().join("RECOVERED_FILES")).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_type().unwrap().is_file() {
            continue;
        }
        let theirs = fs::read(entry.path()).unwrap();
        let is_same =
            |file: &serde_json::Value| deleted.read(file).is_some_and(|ours| ours == theirs);
        assert!(deleted.files.iter().any(is_same), "{:?}", entry.file_name());
        compared += 1;
    }
    assert!(compared >= 4, "{output:?}");
}

#[test]
fn blocks_that_other_files_use_are_counted() {
    require!(Tool("mke2fs"), Mount("ext4"));
    let home = testkit::scratch();
    let image = home.path().join("image");
    Mke2fs::new("ext4").block_size(4096).create(&image, 32 << 20);
    let mut ino = 0;
    testkit::populate_with_kernel(&image, "ext4", |top| {
        fs::write(top.join("old"), contents(1, 4 << 20)).unwrap();
        ino = fs::metadata(top.join("old")).unwrap().ino();
    });
    testkit::populate_with_kernel(&image, "ext4", |top| {
        fs::remove_file(top.join("old")).unwrap();
    });
    let free = Deleted::of(&image, "");
    assert_eq!(free.certainty_of(ino, &contents(1, 4 << 20)), "intact");
    testkit::populate_with_kernel(&image, "ext4", |top| {
        // Fills the image.
        let full = File::create(top.join("new")).unwrap();
        let bytes = contents(2, 1 << 20);
        let mut at = 0;
        while full.write_all_at(&bytes, at).is_ok() {
            at += bytes.len() as u64;
        }
    });
    let used = Deleted::of(&image, "");
    let files = used.inode(ino);
    assert!(!files.is_empty());
    for file in files {
        assert_ne!(file["certainty"], "intact", "{file:#}");
        let blocks = &file["blocks"];
        let has_map = !file["extents"].as_array().unwrap().is_empty();
        assert!(!has_map || blocks["in_use"].as_u64().unwrap() > 900, "{file:#}");
    }
}

#[test]
fn an_open_file_without_a_name_is_intact() {
    require!(Tool("mke2fs"), Mount("ext4"));
    let home = testkit::scratch();
    let (image, copy) = (home.path().join("image"), home.path().join("copy"));
    Mke2fs::new("ext4").block_size(4096).create(&image, 32 << 20);
    let mount = KernelMount::new(&image, &MountOptions::read_write("ext4"));
    let path = mount.path().join("open");
    fs::write(&path, contents(1, LEN_ONE)).unwrap();
    let open = File::open(&path).unwrap();
    let ino = open.metadata().unwrap().ino();
    open.sync_all().unwrap();
    fs::remove_file(&path).unwrap();
    let synced = testkit::command("sync").arg("-f").arg(mount.path()).status().unwrap();
    assert!(synced.success());
    testkit::copy_image(&image, &copy);
    drop(open);
    mount.unmount();
    let deleted = Deleted::of(&copy, "");
    assert_eq!(deleted.certainty_of(ino, &contents(1, LEN_ONE)), "intact");
}

#[test]
fn names_removed_by_debugfs_are_in_the_slack() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    for fs_type in ["ext2", "ext4"] {
        let home = testkit::scratch();
        let (image, tree) = (home.path().join("image"), home.path().join("tree"));
        fs::create_dir_all(tree.join("d")).unwrap();
        for number in 0..9 {
            fs::write(tree.join(format!("d/name-{number}")), contents(number, 5000)).unwrap();
        }
        Mke2fs::new(fs_type).populate(&tree).create(&image, 32 << 20);
        for number in [3, 5] {
            testkit::debugfs_write(&image, &format!("rm /d/name-{number}"));
        }
        let deleted = Deleted::of(&image, "");
        let paths = deleted.paths();
        for path in ["/d/name-3", "/d/name-5"] {
            assert!(paths.contains(path), "{path} in {paths:?}");
        }
        assert!(!paths.contains("/d/name-4"), "{paths:?}");
        let slack = deleted.files.iter().flat_map(|file| file["names"].as_array().unwrap());
        let kinds: BTreeSet<_> =
            slack.map(|name| name["source"]["kind"].as_str().unwrap()).collect();
        assert!(kinds.contains("directory slack"), "{kinds:?}");
    }
}

#[test]
fn files_removed_by_this_program_are_listed() {
    let home = testkit::scratch();
    let dir = home.path();
    fs::create_dir_all(dir.join("tree/d")).unwrap();
    for number in 0..9 {
        fs::write(dir.join(format!("tree/d/name-{number}")), contents(number, 5000)).unwrap();
    }
    done(dir, "build tree image --size 32M");
    done(dir, "rm image /d/name-3 /d/name-5");
    let deleted = Deleted::of(&dir.join("image"), "");
    let paths = deleted.paths();
    for path in ["/d/name-3", "/d/name-5"] {
        assert!(paths.contains(path), "{path} in {paths:?}");
    }
    assert!(!paths.contains("/d/name-4"), "{paths:?}");
}
