//! The kernel processes orphans left by this crate, and this crate processes those of the kernel.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use ext4::OrphanReport;
use testkit::{KernelMount, MountOptions, require};
use vfs::FileSystem;

use super::{KINDS, OrphanImage, crashed, new_file, orphan};

#[test]
fn the_kernel_ends_what_a_crash_leaves() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (_, arguments) in KINDS {
        let image = crashed(arguments, 600);
        let clean = OrphanImage::new(arguments);
        KernelMount::new(&image.path, &MountOptions::read_write("ext4")).unmount();
        testkit::e2fsck(&image.path);
        assert_eq!(image.free_inodes(), clean.free_inodes());
    }
}

#[test]
fn we_end_what_the_kernel_leaves() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (kind, arguments) in KINDS {
        let image = OrphanImage::new(arguments);
        let free = (image.free_inodes(), image.free_blocks());
        let mount = KernelMount::new(&image.path, &MountOptions::read_write("ext4"));
        let open: Vec<_> = (0..600_u64)
            .map(|number| {
                let path = mount.path().join(number.to_string());
                let file = File::create(&path).unwrap();
                for run in 0..number % 7 * number % 40 {
                    file.write_all_at(&[1; 1000], run * 20_000).unwrap();
                }
                fs::remove_file(&path).unwrap();
                file
            })
            .collect();
        rustix::fs::syncfs(&open[0]).unwrap();
        let copy = image.copy();
        drop(open);
        mount.unmount();
        testkit::e2fsck(&image.path);

        let fs = copy.open();
        assert_eq!(fs.cleaned_orphans(), OrphanReport { truncated: 0, freed: 600 }, "{kind}");
        fs.close().unwrap();
        testkit::e2fsck(&copy.path);
        assert_eq!((copy.free_inodes(), copy.free_blocks()), free, "{kind}");
    }
}

#[test]
fn a_truncation_that_the_kernel_began_is_ended() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let image = OrphanImage::new(KINDS[1].1);
    let fs = image.open();
    let ino = fs.create(fs.root(), b"file", &new_file()).unwrap();
    fs.write(ino, 0, &[0xcd; 50_000], None).unwrap();
    fs.close().unwrap();
    // The size is set and the file is on the list, but nothing is freed or zeroed yet.
    testkit::debugfs_write(&image.path, &format!("set_inode_field <{ino}> size 5000"));
    testkit::debugfs_write(&image.path, &format!("set_super_value last_orphan {ino}"));
    let fs = image.open();
    assert_eq!(fs.cleaned_orphans(), OrphanReport { truncated: 1, freed: 0 });
    fs.truncate(ino, 50_000, None).unwrap();
    let mut bytes = vec![1; 50_000];
    fs.read(ino, 0, &mut bytes).unwrap();
    assert!(bytes[..5000].iter().all(|&byte| byte == 0xcd));
    assert!(bytes[5000..].iter().all(|&byte| byte == 0));
    fs.close().unwrap();
    testkit::e2fsck(&image.path);
}

#[test]
fn the_kernel_frees_the_contents_of_what_a_crash_leaves() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (kind, arguments) in KINDS {
        let image = OrphanImage::new(arguments);
        let free = (image.free_inodes(), image.free_blocks());
        let fs = image.open();
        for number in 0..400_u64 {
            let ino = orphan(&fs);
            for run in 0..number % 5 {
                fs.write(ino, run * 20_000, &[1; 1000], None).unwrap();
            }
            fs.set_xattr(ino, b"user.name", &vec![b'v'; number as usize]).unwrap();
        }
        fs.sync().unwrap();
        drop(fs);
        KernelMount::new(&image.path, &MountOptions::read_write("ext4")).unmount();
        testkit::e2fsck(&image.path);
        assert_eq!((image.free_inodes(), image.free_blocks()), free, "{kind}");
    }
}
