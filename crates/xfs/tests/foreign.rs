//! Images that other programs made show what was put into them.

use crate::changing;

use changing::kernel::{Leave, assert_same};
use oracle::{Filled, XFS_SAMPLES, require};

/// Makes the samples of a kind and reads them.
fn read_samples(filled: Filled) {
    for sample in XFS_SAMPLES.iter().filter(|sample| sample.filled == filled) {
        let folder = oracle::scratch();
        let (image, work) = (folder.path().join("image"), folder.path().join("work"));
        std::fs::create_dir(&work).unwrap();
        eprintln!("{}", sample.name);
        let tree = sample.create(&image, &work);
        assert_same(&tree, &image, Leave { copied: filled != Filled::ByKernel });
    }
}

#[test]
fn what_the_kernel_filled() {
    require!(Mount("xfs"), Tool("mkfs.xfs"), Tool("xfsprogs-6.1/bin/mkfs.xfs"));
    read_samples(Filled::ByKernel);
}

#[test]
fn what_mkfs_filled() {
    require!(Tool("mkfs.xfs"), Tool("xfsprogs-6.1/bin/mkfs.xfs"), Root);
    read_samples(Filled::FromDirectory);
    read_samples(Filled::FromPrototype);
}
