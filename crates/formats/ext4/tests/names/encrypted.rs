//! Encrypted directories without their key: names are listed and removed, but not created or moved. The errors are
//! those of Linux 6.18 with an image of `golden/make-encrypted`.

use std::fs;
use std::path::Path;

use ext4::Ext4;
use testkit::{KernelMount, MountOptions, e2fsck, require, scratch};
use vfs::{Error, FileSystem, FileType, Ino, RenameMode};

use super::common::{NEW, entries, later, open};
use crate::common::image::{ENCRYPTED, unpack};

/// Writes the kernel's image to a file.
fn image(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("image");
    fs::write(&path, unpack(ENCRYPTED)).unwrap();
    path
}

/// Removes all entries of a directory.
fn remove_all(fs: &Ext4, dir: Ino) -> usize {
    let mut count = 0;
    for (name, ino) in entries(fs, dir) {
        assert_eq!(fs.lookup(dir, &name).unwrap(), ino);
        if fs.attributes(ino).unwrap().file_type == FileType::Directory {
            if !entries(fs, ino).is_empty() {
                assert!(matches!(fs.rmdir(dir, &name, later(1)), Err(Error::NotEmpty)));
            }
            count += remove_all(fs, ino);
            fs.rmdir(dir, &name, later(1)).unwrap();
        } else {
            fs.unlink(dir, &name, later(1)).unwrap();
        }
        assert!(matches!(fs.lookup(dir, &name), Err(Error::NotFound)));
        count += 1;
    }
    count
}

#[test]
fn names_are_removed_without_the_key() {
    require!(Tool("e2fsck"), Mount("ext4"));
    let folder = scratch();
    let path = image(folder.path());
    let fs = open(&path);
    let root = fs.root();
    let dir = fs.lookup(root, b"enc").unwrap();
    // Ten names in the directory, one in its subdirectory, and 200 in a directory that has an index.
    assert_eq!(entries(&fs, dir).len(), 10);
    let free = fs.statfs().unwrap().inodes_free;
    assert_eq!(remove_all(&fs, dir), 10 + 1 + 200);
    assert_eq!(fs.statfs().unwrap().inodes_free, free + 10 + 1 + 200);
    fs.rename((root, b"enc"), (root, b"moved"), RenameMode::Replace, later(2)).unwrap();
    fs.close().unwrap();
    e2fsck(&path);
    let mount = KernelMount::new(&path, &MountOptions::read_write("ext4"));
    assert_eq!(fs::read_dir(mount.path().join("moved")).unwrap().count(), 0);
    fs::remove_dir(mount.path().join("moved")).unwrap();
    mount.unmount();
    e2fsck(&path);
}

#[test]
fn names_are_neither_made_nor_moved_without_the_key() {
    require!(Tool("e2fsck"));
    let folder = scratch();
    let path = image(folder.path());
    let before = fs::read(&path).unwrap();
    let fs = open(&path);
    let root = fs.root();
    let dir = fs.lookup(root, b"enc").unwrap();
    let plain = fs.lookup(root, b"plain").unwrap();
    let files = entries(&fs, dir);
    let is_file = |ino| fs.attributes(ino).unwrap().file_type == FileType::Regular;
    let (name, _) = files.iter().find(|(_, ino)| is_file(*ino)).unwrap();
    let (name, replace) = (&name[..], RenameMode::Replace);
    let other = files.iter().find(|(other, ino)| other != name && is_file(*ino)).unwrap();
    let refused = [
        fs.create(dir, b"new", &NEW).map(drop),
        fs.mkdir(dir, b"new", &NEW).map(drop),
        fs.symlink(dir, b"new", b"target", &NEW).map(drop),
        fs.link(plain, dir, b"new", None),
        fs.link_over(plain, dir, name, None),
        fs.rename((dir, name), (root, b"out"), replace, None),
        fs.rename((dir, name), (dir, b"new"), replace, None),
        fs.rename((dir, name), (dir, &other.0), replace, None),
        fs.rename((dir, name), (root, b"plain"), RenameMode::Exchange, None),
        fs.rename((root, b"plain"), (dir, b"in"), replace, None),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        assert!(matches!(result, Err(Error::Encrypted(_))), "{number}: {result:?}");
    }
    assert!(matches!(fs.unlink(dir, b"small", None), Err(Error::NotFound)));
    assert_eq!(entries(&fs, dir), files);
    fs.close().unwrap();
    e2fsck(&path);
    let changed = before.iter().zip(fs::read(&path).unwrap()).filter(|(a, b)| **a != *b);
    assert!(changed.count() < 64, "only superblocks were written");
}
