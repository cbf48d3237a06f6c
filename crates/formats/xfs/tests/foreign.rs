//! Images made and filled by mkfs.xfs contain the files of their source, and the check finds nothing. Images filled by
//! the kernel are read and checked before they are changed, in `foreign_changed`.

use crate::{changing, checking};

use changing::kernel::{Leave, assert_same};
use checking::assert_sound;
use testkit::{Filled, XfsSample, require};

/// Makes the samples of a kind and reads them.
fn read_samples(filled: Filled) {
    for sample in XfsSample::all(filled) {
        let folder = testkit::scratch();
        let (image, work) = (folder.path().join("image"), folder.path().join("work"));
        std::fs::create_dir(&work).unwrap();
        eprintln!("{}", sample.name);
        let tree = sample.create(&image, &work);
        assert_same(&tree, &image, Leave { copied: true });
        assert_sound(&image);
    }
}

#[test]
fn images_filled_by_mkfs() {
    require!(Tool("mkfs.xfs"), Tool("xfsprogs-6.1/bin/mkfs.xfs"), Root);
    read_samples(Filled::FromDirectory);
    read_samples(Filled::FromPrototype);
}
