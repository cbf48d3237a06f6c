//! Images with features that constrain inodes: fs-verity, projects and quotas. e2fsck checks the results.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

mod project;
mod statfs;
mod structure;
mod usage;
mod usage_crash;
mod verity;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{BlockDevice, FileDevice, MemoryDevice};
use ext4::{Ext4, OpenOptions};
use testkit::{Mke2fs, scratch};
use vfs::{FileSystem, Ino, NewInode};

const MIB: u64 = 1 << 20;

/// An image in a temporary directory.
pub struct QuotaImage {
    _dir: tempfile::TempDir,
    pub path: PathBuf,
}

impl QuotaImage {
    /// Creates an image by mke2fs with these arguments.
    pub fn new(arguments: &[&str]) -> Self {
        let dir = scratch();
        let path = dir.path().join("image");
        Mke2fs::new("ext4").arguments(arguments.iter().copied()).create(&path, 32 * MIB);
        Self { _dir: dir, path }
    }

    pub fn device(&self) -> Arc<dyn BlockDevice> {
        let file = File::options().read(true).write(true).open(&self.path).unwrap();
        Arc::new(FileDevice::new(file).unwrap())
    }

    /// Reads the image into memory.
    pub fn in_memory(&self) -> MemoryDevice {
        testkit::crash::read_image(&self.path).unwrap()
    }

    pub fn open(&self) -> Ext4 {
        Ext4::open_writable(self.device(), &OpenOptions::default()).unwrap()
    }
}

/// Returns the attributes of a new file with this owner.
pub fn owned(uid: u32, gid: u32) -> NewInode {
    NewInode { permissions: 0o644, uid, gid, ..NewInode::default() }
}

pub fn create(fs: &Ext4, dir: Ino, name: &str) -> Ino {
    fs.create(dir, name.as_bytes(), &owned(0, 0)).unwrap()
}

/// Asserts that e2fsck finds no damage. An extent tree that could be narrower is not damage.
#[track_caller]
pub fn check(image: &Path) {
    let Err(verdict) = testkit::e2fsck_verdict(image) else { return };
    let remarks = verdict.split("\nall:\n").next().unwrap_or_default();
    let (status, remarks) = remarks.split_once('\n').unwrap_or((remarks, ""));
    let harmless = |line: &str| line.is_empty() || line.contains("could be narrower");
    assert!(status.contains("Some(0)") && remarks.lines().all(harmless), "{verdict}");
}
