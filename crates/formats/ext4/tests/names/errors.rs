//! A full device.

use testkit::{Mke2fs, require};
use vfs::{Error, FileSystem, Ino, RenameMode};

use crate::names::common::{ImageFile, NEW, entries, later};

/// Creates files `a` and `b`, and a directory `d` that contains `e`.
fn fill(fs: &dyn FileSystem) -> Ino {
    let top = fs.mkdir(fs.root(), b"top", &NEW).unwrap();
    fs.create(top, b"a", &NEW).unwrap();
    fs.create(top, b"b", &NEW).unwrap();
    let d = fs.mkdir(top, b"d", &NEW).unwrap();
    fs.mkdir(d, b"e", &NEW).unwrap();
    top
}

/// Returns the names and attributes of two levels.
fn state(fs: &dyn FileSystem, top: Ino) -> String {
    let d = fs.lookup(top, b"d").unwrap();
    let below = [top, d].map(|dir| (fs.attributes(dir).unwrap(), entries(fs, dir)));
    let e = fs.lookup(d, b"e").unwrap();
    format!("{below:?} {:?}", (fs.attributes(e).unwrap(), fs.lookup(e, b"..")))
}

/// A directory whose leaves are full, on a full device.
#[test]
fn a_full_device_changes_nothing() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    let image = ImageFile::new(&Mke2fs::new("ext4").block_size(1024).arguments(["-m", "0"]), 2);
    let fs = image.open();
    let top = fill(&fs);
    let file = fs.lookup(top, b"a").unwrap();
    let name = |n: u32| format!("{n:->200}").into_bytes();
    let count = (0..).find(|&n| fs.link(file, top, &name(n), later(1)).is_err()).unwrap();
    // A split that takes two blocks fails with one left.
    while let Ok(()) = fs.write(file, fs.attributes(file).unwrap().size, &[1; 1024], None) {}
    let before = state(&fs, top);
    let d = fs.lookup(top, b"d").unwrap();
    let last = fs.link(file, top, &name(count), later(2));
    assert!(matches!(last, Err(Error::NoSpace)), "{last:?}");
    for mode in [RenameMode::Replace, RenameMode::NoReplace] {
        let moved = fs.rename((d, b"e"), (top, &name(count)), mode, later(2));
        assert!(matches!(moved, Err(Error::NoSpace)), "{moved:?}");
    }
    let made = fs.mkdir(d, b"new", &NEW);
    assert!(matches!(made, Err(Error::NoSpace)), "{made:?}");
    assert_eq!(state(&fs, top), before);
    // Removal needs no space, and frees some.
    fs.unlink(top, &name(0), later(3)).unwrap();
    fs.rename((d, b"e"), (top, &name(0)), RenameMode::NoReplace, later(4)).unwrap();
    image.close(fs);
}
