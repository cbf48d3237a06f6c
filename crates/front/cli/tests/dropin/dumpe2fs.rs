//! Output of `dumpe2fs` and `tune2fs -l`, compared with the originals byte for byte.

use std::path::Path;

use super::{done, file, home, run_with};

/// A time zone other than UTC: times are shown in the caller's zone.
const ZONE: (&str, &str) = ("TZ", "America/New_York");

/// Options of mke2fs for images created by the original.
const THEIRS: [&str; 11] = [
    "-t ext2",
    "-t ext3 -b 4096 -J size=16",
    "-t ext4 -L name -m 1.5",
    "-t ext4 -O bigalloc -C 16384",
    "-t ext4 -O meta_bg,^resize_inode,fast_commit,orphan_file",
    "-t ext4 -b 4096 -g 8192 -E stride=4 -O ^flex_bg,^metadata_csum,uninit_bg,^64bit",
    "-t ext4 -O ^has_journal,inline_data,ea_inode,encrypt,verity,stable_inodes,^64bit",
    "-t ext4 -O quota,project,casefold,metadata_csum_seed,sparse_super2 -E encoding=utf8",
    "-t ext4 -I 128 -E hash_seed=86ca73ff-7379-40bd-a098-fcb03a6e719d",
    "-t ext4 -U clear -M /srv -e panic",
    "-r 0",
];

/// Compares what both programs print about an image.
fn compare(dir: &Path, program: &str, options: &str, about: &str) {
    let ours = run_with(dir, &format!("{program} {options} image"), &[ZONE]);
    assert_eq!(ours.status, 0, "{about}: {ours:?}");
    let mut theirs = testkit::command(program);
    theirs.current_dir(dir).env(ZONE.0, ZONE.1).args(options.split_whitespace()).arg("image");
    let theirs = String::from_utf8(theirs.output().unwrap().stdout).unwrap();
    let banner = |line: &&str| !line.starts_with("tune2fs ");
    let theirs = theirs.lines().filter(banner).collect::<Vec<_>>();
    assert_eq!(ours.out.lines().collect::<Vec<_>>(), theirs, "{about}: {program} {options}");
}

fn compare_all(dir: &Path, about: &str) {
    compare(dir, "dumpe2fs", "", about);
    compare(dir, "dumpe2fs", "-h", about);
    compare(dir, "dumpe2fs", "-x", about);
    compare(dir, "tune2fs", "-l", about);
}

#[test]
fn groups_and_header_are_those_of_the_original() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("tune2fs"));
    let home = home();
    let dir = home.path();
    for options in THEIRS {
        file(dir, "image", 0);
        file(dir, "image", 128 << 20);
        let mut mke2fs = testkit::command("mke2fs");
        mke2fs.current_dir(dir).args(["-q", "-F"]).args(options.split_whitespace()).arg("image");
        let made = mke2fs.output().unwrap();
        assert!(made.status.success(), "{options}: {made:?}");
        compare_all(dir, options);
    }
}

#[test]
fn our_images_are_shown_alike() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("tune2fs"));
    let home = home();
    let dir = home.path();
    for line in [
        "mkfs.ext4 -q -L name -m 1.5 -d tree image 64M",
        "mkfs.ext2 -q image 8M",
        "mkfs.ext3 -q -d tree image 64M",
        "mke2fs -q -t ext4 -b 4096 -U clear image 200M",
    ] {
        let _ = std::fs::remove_file(dir.join("image"));
        done(dir, line);
        compare_all(dir, line);
        done(dir, "tune2fs -i 3w -c 5 -E mount_opts=noatime image");
        compare_all(dir, line);
    }
}

/// A kernel's mount changes features of the journal, times and counts.
#[test]
fn an_image_that_was_mounted_is_shown_alike() {
    testkit::require!(Version("mke2fs", 1, 47), Tool("dumpe2fs"), Tool("tune2fs"), Mount("ext4"));
    let home = home();
    let dir = home.path();
    done(dir, "mkfs.ext4 -q -d tree image 64M");
    let options = testkit::MountOptions::read_write("ext4");
    let mount = testkit::KernelMount::new(dir.join("image"), &options);
    std::fs::remove_file(mount.path().join("etc/hostname")).unwrap();
    mount.unmount();
    compare_all(dir, "mounted");
}
