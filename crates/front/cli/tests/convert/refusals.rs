//! Rejected conversions, which leave nothing behind.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use testkit::{
    KernelMount, Mke2fs, MountOptions, Tree, copy_image, debugfs_write, digest, require, scratch,
};

use super::common::convert;
use crate::build::common::{build, fail, judge, names_in, succeed};

#[test]
fn refused_conversions_leave_no_file() {
    require!(Tool("e2fsck"));
    let directory = scratch();
    let home = directory.path();
    let source = home.join("source");
    fs::create_dir(&source).unwrap();
    for n in 0..300 {
        fs::write(source.join(format!("file-{n}")), vec![1; 5000]).unwrap();
    }
    let (old, new) = (home.join("old.img"), home.join("new.img"));
    build(&source, &old, "--label sixteen-bytes-xx");
    let refused = |options: &str, status: i32, expected: &str| {
        let said = fail(&mut convert(&old, &new, options), status);
        assert!(said.contains(expected), "{options}: {said}");
        assert_eq!(names_in(home), ["old.img", "source"], "{options}");
    };
    refused("--fs xfs", 2, "--label");
    refused("--partition 1", 1, "partition");
    refused("--size 1M", 4, "larger");
    let said = fail(&mut convert(&old, &old, ""), 2);
    assert!(said.contains("--force"), "{said}");
    // Another process changes it.
    let file = File::options().read(true).write(true).open(&old).unwrap();
    file.lock().unwrap();
    refused("", 4, "in use");
    file.unlock().unwrap();
    // Damage the block of the root directory.
    let mut image = fs::read(&old).unwrap();
    let at = image.windows(8).position(|bytes| bytes == b"file-123").unwrap() / 4096 * 4096;
    image[at + 20..at + 600].fill(0xa5);
    file.write_all_at(&image[at..at + 4096], at as u64).unwrap();
    refused("", 3, "old.img");
    refused("--fs xfs --label x", 3, "old.img");
    let itself = fail(&mut convert(&old, &old, "--force"), 3);
    assert!(itself.contains("old.img"), "{itself}");
    assert!(image == fs::read(&old).unwrap());
    fs::write(&old, b"no image").unwrap();
    refused("", 3, "neither");
}

#[test]
fn an_image_that_a_kernel_has_mounted_is_refused_and_its_copy_recovered() {
    crate::require_all_formats!(Root);
    let directory = scratch();
    let home = directory.path();
    let (old, copy) = (home.join("old.img"), home.join("copy.img"));
    let (source, new) = (home.join("source"), home.join("new.img"));
    fs::create_dir(&source).unwrap();
    for format in ["ext4", "xfs"] {
        build(&source, &old, &format!("--fs {format} --size 320M --force"));
        let mount = KernelMount::new(&old, &MountOptions::read_write(format));
        for n in 0..200 {
            fs::write(mount.path().join(format!("file-{n}")), vec![n as u8; 3000]).unwrap();
        }
        let top = File::open(mount.path()).unwrap();
        for n in 0..200 {
            File::open(mount.path().join(format!("file-{n}"))).unwrap().sync_all().unwrap();
        }
        top.sync_all().unwrap();
        drop(top);
        let said = fail(&mut convert(&old, &new, ""), 4);
        assert!(said.contains("in use by the kernel"), "{said}");
        assert!(!new.exists());
        copy_image(&old, &copy);
        let tree = Tree::of(mount.path());
        drop(mount);
        let before = digest(&copy);
        for to in ["ext4", "xfs"] {
            succeed(&mut convert(&copy, &new, &format!("--fs {to} --force")));
            judge(&new, &tree);
        }
        assert_eq!(digest(&copy), before, "the copy was written");
        fs::remove_file(&new).unwrap();
    }
}

#[test]
fn encrypted_files_are_refused_by_name() {
    require!(Tool("mke2fs"), Tool("debugfs"));
    let directory = scratch();
    let home = directory.path();
    let (source, old) = (home.join("source"), home.join("old.img"));
    fs::create_dir_all(source.join("d")).unwrap();
    fs::write(source.join("d/secret"), "x").unwrap();
    let mke2fs = Mke2fs::new("ext4").features("encrypt").populate(&source);
    mke2fs.create(&old, 16 << 20);
    debugfs_write(&old, "set_inode_field /d/secret flags 0x80800");
    for options in ["", "--fs xfs --small"] {
        let said = fail(&mut convert(&old, &home.join("new.img"), options), 3);
        assert!(said.contains("d/secret") && said.contains("encrypted"), "{said}");
    }
    assert_eq!(names_in(home), ["old.img", "source"]);
    // A disk is not replaced by the image that it contains.
    let mut command = convert(&old, &old, "--offset 4096 --force");
    assert!(fail(&mut command, 2).contains("whole disk"));
}
