//! `tune2fs` and `e2label`.

use std::fs;

use super::{contents, done, home, run};

/// A line of `dumpe2fs -h`.
pub(super) fn shown(dir: &std::path::Path, name: &str) -> String {
    let text = done(dir, "tune2fs -l image");
    let line = text.lines().find(|line| line.starts_with(&format!("{name}:")));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .split_once(':')
        .unwrap()
        .1
        .trim()
        .to_owned()
}

#[test]
fn all_programs_see_settings_of_tune2fs() {
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    for (options, name, value) in [
        ("-L label", "Filesystem volume name", "label"),
        ("-M /srv", "Last mounted on", "/srv"),
        ("-c 20", "Maximum mount count", "20"),
        ("-c 0", "Maximum mount count", "-1"),
        ("-C 7", "Mount count", "7"),
        ("-i 2w", "Check interval", "1209600 (2 weeks)"),
        ("-T 20200913122640", "Last checked", "Sun Sep 13 12:26:40 2020"),
        ("-e remount-ro", "Errors behavior", "Remount read-only"),
        ("-m 2.5", "Reserved block count", "1638"),
        ("-r 100", "Reserved block count", "100"),
        ("-u 5", "Reserved blocks uid", "5 (user unknown)"),
        ("-g 6", "Reserved blocks gid", "6 (group unknown)"),
        (
            "-o journal_data_writeback,^acl",
            "Default mount options",
            "journal_data_writeback user_xattr",
        ),
        (
            "-U 0a28e812-3747-40bc-8194-e08e509097d0",
            "Filesystem UUID",
            "0a28e812-3747-40bc-8194-e08e509097d0",
        ),
        ("-E stride=4,stripe_width=8", "Filesystem state", "clean"),
    ] {
        done(dir, &format!("tune2fs {options} image"));
        assert_eq!(shown(dir, name), value, "{options}");
    }
    done(dir, "tune2fs -O large_dir,ea_inode image");
    assert!(shown(dir, "Filesystem features").contains("large_dir"));
    done(dir, "e2label image other");
    assert_eq!(done(dir, "e2label image").trim(), "other");
    assert_eq!(contents(dir, "image", "/etc/hostname"), "box\n");
    testkit::require!(Tool("e2fsck"), Tool("dumpe2fs"));
    testkit::e2fsck(dir.join("image"));
    let mut theirs = testkit::command("dumpe2fs");
    let theirs = theirs.current_dir(dir).env("TZ", "UTC").args(["-h", "image"]).output().unwrap();
    let theirs = String::from_utf8(theirs.stdout).unwrap();
    for line in done(dir, "dumpe2fs -h image").lines().filter(|line| !line.is_empty()) {
        // User names depend on the machine.
        let is_there = theirs.lines().any(|known| known.trim_end() == line.trim_end());
        assert!(is_there || line.starts_with("Reserved blocks"), "{line:?} is not in {theirs}");
    }
}

/// Both programs set the superblock fields without other effect equally, in the copies too.
#[test]
fn hints_of_mke2fs_are_those_of_its_namesake() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("e2fsck"));
    let home = home();
    let dir = home.path();
    let hints = "-e remount-ro -E stride=4,stripe_width=8,test_fs";
    done(dir, &format!("mke2fs -q -t ext4 -F {hints} image 600M"));
    let mut mke2fs = testkit::command("mke2fs");
    let mke2fs = mke2fs.current_dir(dir).args(["-q", "-t", "ext4", "-F"]);
    let made = mke2fs.args(hints.split_whitespace()).args(["theirs", "600M"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let header = |options: &[&str], image: &str| {
        let mut command = testkit::command("dumpe2fs");
        let output = command.current_dir(dir).arg("-h").args(options).arg(image).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let wanted = ["Errors behavior", "RAID stride", "RAID stripe width", "Filesystem flags"];
        let is_wanted = |line: &&str| wanted.iter().any(|name| line.starts_with(name));
        text.lines().filter(is_wanted).map(str::to_owned).collect::<Vec<_>>()
    };
    let expected = header(&[], "theirs");
    assert_eq!(expected.len(), 4, "{expected:?}");
    assert_eq!(header(&[], "image"), expected);
    let copy = ["-o", "superblock=32768", "-o", "blocksize=4096"];
    assert_eq!(header(&copy, "image"), expected);
    let ours = done(dir, "dumpe2fs -h image");
    assert!(expected.iter().all(|line| ours.contains(line.trim_end())), "{ours}");
    testkit::e2fsck(dir.join("image"));
    done(dir, "mke2fs -q -E android_sparse,stride=4 sparse 32M");
}

#[test]
fn refused_changes_of_tune2fs_change_nothing() {
    let home = home();
    let dir = home.path();
    done(dir, "mke2fs -q -t ext4 -O ^metadata_csum_seed image 64M");
    let before = fs::read(dir.join("image")).unwrap();
    for line in [
        "tune2fs",
        "tune2fs -L x nothing",
        "tune2fs -O ^extent image",
        "tune2fs -O sparkles image",
        "tune2fs -O metadata_csum_seed,^extent -U random image",
        "tune2fs -j image",
        "tune2fs -J size=4 image",
        "tune2fs -I 512 image",
        "tune2fs -m 60 image",
        "tune2fs -r 1000000000 image",
        "tune2fs -e never image",
        "tune2fs -i 1y image",
        "tune2fs -T yesterday image",
        "tune2fs -o sparkles image",
        "tune2fs -E sparkles image",
        "tune2fs -E clear_mmp image",
        "tune2fs -Q allquota image",
        "tune2fs -z undo image",
        // If one of several changes fails, none is written.
        "tune2fs -L label -O ^extent image",
    ] {
        let ended = run(dir, line);
        assert_eq!(ended.status, 1, "{line}: {ended:?}");
        assert!(!ended.messages.is_empty(), "{line}");
        assert!(fs::read(dir.join("image")).unwrap() == before, "{line}");
    }
}

/// Without metadata checksums, a new UUID changes only the superblock and the checksums of group
/// descriptors. With them, it changes all checksums, unless a feature keeps their seed.
#[test]
fn every_kind_of_file_system_gets_another_uuid() {
    let home = home();
    let dir = home.path();
    for (make, options) in [
        ("mkfs.ext2 -q -d tree image 64M", "-U random"),
        ("mkfs.ext3 -q -d tree image 64M", "-U random"),
        ("mke2fs -q -t ext4 -O ^metadata_csum,^metadata_csum_seed -d tree image 64M", "-U random"),
        (
            "mke2fs -q -t ext4 -O ^metadata_csum,^metadata_csum_seed,uninit_bg image 64M",
            "-U random",
        ),
        ("mke2fs -q -t ext4 -O metadata_csum_seed -d tree image 64M", "-U random"),
        ("mke2fs -q -t ext4 -O ^metadata_csum_seed -d tree image 64M", "-U random"),
        ("mke2fs -q -t ext4 -O ^metadata_csum_seed image 64M", "-U random -O metadata_csum_seed"),
        ("mke2fs -q -t ext4 -O ^metadata_csum_seed image 64M", "-O metadata_csum_seed -U random"),
    ] {
        let _ = fs::remove_file(dir.join("image"));
        done(dir, make);
        let before = shown(dir, "Filesystem UUID");
        done(dir, &format!("tune2fs {options} image"));
        assert_ne!(shown(dir, "Filesystem UUID"), before, "{make}");
        done(dir, "e2fsck -fn image");
        if testkit::missing(testkit::Need::Tool("e2fsck")).is_none() {
            testkit::e2fsck(dir.join("image"));
        }
    }
}
