//! Operations on names at the maximum link count, which would take too many names to reach by creating them.

use operations::RunOperations;
use std::sync::Arc;

use disk::MemoryDevice;
use vfs::{Error, FileSystem, Ino, NewInode};

use crate::mkfs::{self, Options, PreviousContents};
use crate::{Xfs, XfsCore};
use operations::names::LinkEffects;

const SIZE: u64 = 64 << 20;

fn make() -> Xfs {
    let options = Options { allow_small: true, ..Options::new(SIZE) };
    let device = MemoryDevice::new(SIZE);
    mkfs::format(&device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    Xfs::open_in_progress(Arc::new(device), 1 << 20).unwrap()
}

/// Sets the link count of an inode.
fn set_links(fs: &Xfs, ino: Ino, links: u32) {
    let _lock = fs.locks.exclusive(&[ino]);
    let mut inode = fs.load(ino).unwrap();
    inode.inode.set_nlink(links);
    fs.atomically(|op| {
        op.stage(inode.clone());
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_taken_name_comes_before_the_limit_of_links() {
    let (fs, new) = (make(), NewInode::default());
    let dir = fs.mkdir(fs.root(), b"dir", &new).unwrap();
    let file = fs.create(dir, b"file", &new).unwrap();
    set_links(&fs, dir, XfsCore::LINKS_MAX - 1);
    set_links(&fs, file, XfsCore::LINKS_MAX - 1);
    fs.mkdir(dir, b"last", &new).unwrap();
    fs.link(file, dir, b"second", None).unwrap();
    let free = fs.statfs().unwrap();

    assert!(matches!(fs.mkdir(dir, b"more", &new), Err(Error::TooManyLinks)));
    assert!(matches!(fs.link(file, dir, b"third", None), Err(Error::TooManyLinks)));
    for name in [&b"file"[..], b"last", b"second"] {
        assert!(matches!(fs.mkdir(dir, name, &new), Err(Error::Exists)));
        assert!(matches!(fs.link(file, dir, name, None), Err(Error::Exists)));
    }
    assert_eq!(fs.statfs().unwrap(), free);
    fs.create(dir, b"a file", &new).unwrap();
}
