//! Tests of recounting and of changes that operations note.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use testkit::{Mke2fs, debugfs_write, e2fsck, e2fsck_verdict, require, scratch};
use vfs::{FileSystem, NewInode};

use super::account::{Account, Changes};
use crate::{Ext4, OpenOptions};

fn open(path: &Path) -> Ext4 {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let options = OpenOptions { cache_bytes: 8 << 20, ..OpenOptions::default() };
    Ext4::open_writable(Arc::new(FileDevice::new(file).unwrap()), &options).unwrap()
}

#[test]
fn wrong_usage_is_recounted() {
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("debugfs"));
    let dir = scratch();
    let image = dir.path().join("image");
    let quotas = ["-E", "quotatype=usrquota:grpquota:prjquota"];
    Mke2fs::new("ext4").features("quota,project").arguments(quotas).create(&image, 32 << 20);
    let fs = open(&image);
    for number in 0..100_u32 {
        let new = NewInode { uid: number, gid: number << 20, ..NewInode::default() };
        let name = format!("file{number}");
        let file = fs.create(fs.root(), name.as_bytes(), &new).unwrap();
        fs.write(file, 0, &vec![1; 1000 * number as usize], None).unwrap();
    }
    fs.close().unwrap();
    e2fsck(&image);
    // A user id with an entry, and a group and a project without.
    debugfs_write(&image, "set_inode_field file90 uid 5");
    debugfs_write(&image, "set_inode_field file91 gid 77777");
    debugfs_write(&image, "set_inode_field file92 projid 4000000000");
    assert!(e2fsck_verdict(&image).unwrap_err().contains("QUOTA"));
    let fs = open(&image);
    fs.recount_usage(fs.volume.quota.get().unwrap()).unwrap();
    fs.close().unwrap();
    e2fsck(&image);
}

#[test]
fn changes_that_cancel_out_are_not_recorded() {
    let account = |uid, space| Some(Account { ids: [uid, 2, 3], inodes: 1, space });
    let mut changes = Changes::default();
    changes.note(account(1, 512), account(1, 512));
    assert_eq!(changes.iter().count(), 0);
    changes.note(account(1, 512), account(4, 1024));
    let noted: Vec<_> = changes.iter().map(|c| (c.kind, c.id, c.inodes, c.space)).collect();
    assert_eq!(noted, [(0, 1, -1, -512), (0, 4, 1, 1024), (1, 2, 0, 512), (2, 3, 0, 512)]);
    changes.note(account(4, 1024), account(1, 512));
    assert_eq!(changes.iter().count(), 0);
    changes.note(None, account(1, 0));
    changes.note(account(1, 0), None);
    assert_eq!(changes.iter().count(), 0);
}
