//! Images for tests of operations on names.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::FileDevice;
use ext4::{Ext4, OpenOptions};
use testkit::{Mke2fs, e2fsck, scratch};
use vfs::{FileSystem, Ino, NewInode, Timestamp};

pub(crate) const TIME: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 5 };
pub(crate) const NEW: NewInode =
    NewInode { permissions: 0o755, uid: 1, gid: 2, time: TIME, parent_time: Some(TIME) };

/// An image made by mke2fs, in a directory that is deleted with it.
pub(crate) struct ImageFile {
    _dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl ImageFile {
    pub(crate) fn new(mke2fs: &Mke2fs, mib: u64) -> Self {
        let dir = scratch();
        let path = dir.path().join("image");
        mke2fs.create(&path, mib << 20);
        Self { _dir: dir, path }
    }

    /// Creates an ext4 image with room for many small files.
    pub(crate) fn ext4(block_size: u32, features: &str, mib: u64) -> Self {
        let mke2fs = Mke2fs::new("ext4").block_size(block_size).features(features);
        Self::new(&mke2fs.arguments(["-i", "2048"]), mib)
    }

    pub(crate) fn open(&self) -> Ext4 {
        open(&self.path)
    }

    /// Closes the file system and checks the image with e2fsck.
    #[track_caller]
    pub(crate) fn close(&self, fs: Ext4) {
        fs.close().unwrap();
        e2fsck(&self.path);
    }
}

pub(crate) fn open(path: &Path) -> Ext4 {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    Ext4::open_writable(device, &OpenOptions::default()).unwrap()
}

/// Returns the names and inodes of a directory, sorted, without `.` and `..`.
pub(crate) fn entries(fs: &dyn FileSystem, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut all = Vec::new();
    fs.readdir(dir, vfs::Cookie(0), &mut |entry| {
        if !matches!(entry.name, b"." | b"..") {
            all.push((entry.name.to_vec(), entry.ino));
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    all.sort();
    all
}

pub(crate) fn later(sec: i64) -> Option<Timestamp> {
    Some(Timestamp { sec: TIME.sec + sec, nsec: 0 })
}
