//! The kernel ends what we left, and we end what it left.

use std::fs::{self, File};

use ext4::OrphanReport;
use oracle::{KernelMount, MountOptions, require};

use super::{Image, KINDS, crashed};

#[test]
fn the_kernel_ends_what_a_crash_leaves() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (_, arguments) in KINDS {
        let image = crashed(arguments, 600);
        let clean = Image::new(arguments);
        KernelMount::new(&image.path, &MountOptions::read_write("ext4")).unmount();
        oracle::e2fsck(&image.path);
        assert_eq!(image.free_inodes(), clean.free_inodes());
    }
}

#[test]
fn we_end_what_the_kernel_leaves() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Mount("ext4"));
    for (kind, arguments) in KINDS {
        let image = Image::new(arguments);
        let free = image.free_inodes();
        let mount = KernelMount::new(&image.path, &MountOptions::read_write("ext4"));
        let open: Vec<_> = (0..600)
            .map(|number| {
                let path = mount.path().join(number.to_string());
                let file = File::create(&path).unwrap();
                fs::remove_file(&path).unwrap();
                file
            })
            .collect();
        rustix::fs::syncfs(&open[0]).unwrap();
        let copy = image.copy();
        drop(open);
        mount.unmount();
        oracle::e2fsck(&image.path);

        copy.replay();
        let fs = copy.open();
        assert_eq!(fs.cleaned_orphans(), OrphanReport { truncated: 0, freed: 600 }, "{kind}");
        fs.close().unwrap();
        oracle::e2fsck(&copy.path);
        assert_eq!(copy.free_inodes(), free);
    }
}
