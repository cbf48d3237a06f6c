//! Images of both formats in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use disk::MemoryDevice;
use ext4::Ext4;
use tempfile::TempDir;
use vfs::FileSystem;
use xfs::Xfs;

/// Size of an image in bytes.
const SIZE: u64 = 64 << 20;
const CACHE_BYTES: usize = 8 << 20;

/// An image in memory, open for changes with its journal or log.
pub struct MemoryImage {
    /// Name in messages.
    pub name: &'static str,
    device: Arc<MemoryDevice>,
    fs: OpenImage,
}

enum OpenImage {
    Ext4(Box<Ext4>),
    Xfs(Box<Xfs>),
}

impl MemoryImage {
    /// Returns an empty ext4 image.
    pub fn ext4() -> Self {
        let options = ext4::mkfs::Options::new(SIZE);
        let device = Arc::new(MemoryDevice::new(SIZE));
        let layout = ext4::mkfs::plan(&options).unwrap();
        ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros).unwrap();
        Ext4::open_in_progress(device.clone(), CACHE_BYTES).unwrap().finish(None).unwrap();
        let fs = Ext4::open_writable(device.clone(), &ext4::OpenOptions::default()).unwrap();
        Self { name: "ext4", device, fs: OpenImage::Ext4(Box::new(fs)) }
    }

    /// Returns an empty XFS image.
    pub fn xfs() -> Self {
        let options = xfs::mkfs::Options { allow_small: true, ..xfs::mkfs::Options::new(SIZE) };
        let device = Arc::new(MemoryDevice::new(SIZE));
        let layout = xfs::mkfs::plan(&options).unwrap();
        xfs::mkfs::format(&*device, &layout, xfs::mkfs::PreviousContents::Zeros).unwrap();
        Xfs::open_in_progress(device.clone(), CACHE_BYTES).unwrap().finish(None).unwrap();
        let fs = Xfs::open_writable(device.clone(), &xfs::OpenOptions::default()).unwrap();
        Self { name: "XFS", device, fs: OpenImage::Xfs(Box::new(fs)) }
    }

    /// Returns the file system.
    pub fn fs(&self) -> &dyn FileSystem {
        match &self.fs {
            OpenImage::Ext4(fs) => &**fs,
            OpenImage::Xfs(fs) => &**fs,
        }
    }

    /// Returns the image in the state after a crash now, recovered.
    pub fn crashed(&self) -> Self {
        let device = Arc::new(self.device.fork());
        let fs = match &self.fs {
            OpenImage::Ext4(_) => {
                let options = ext4::OpenOptions::default();
                OpenImage::Ext4(Box::new(Ext4::open_writable(device.clone(), &options).unwrap()))
            }
            OpenImage::Xfs(_) => {
                let options = xfs::OpenOptions::default();
                OpenImage::Xfs(Box::new(Xfs::open_writable(device.clone(), &options).unwrap()))
            }
        };
        Self { name: self.name, device, fs }
    }

    /// Returns an ext4 image after a request of debugfs.
    pub fn changed_by_debugfs(self, request: &str) -> Self {
        let OpenImage::Ext4(fs) = self.fs else { panic!("not ext4") };
        fs.close().unwrap();
        let folder = crate::scratch();
        let path = write(&self.device, &folder);
        crate::debugfs_write(&path, request);
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
        let fs = Ext4::open_writable(device.clone(), &ext4::OpenOptions::default()).unwrap();
        Self { name: self.name, device, fs: OpenImage::Ext4(Box::new(fs)) }
    }

    /// Closes the image and runs the checker of its format, if there is one.
    pub fn judge(self) {
        let tool = match self.fs {
            OpenImage::Ext4(fs) => {
                fs.close().unwrap();
                "e2fsck"
            }
            OpenImage::Xfs(fs) => {
                fs.close().unwrap();
                "xfs_repair"
            }
        };
        if !crate::satisfied("the judgement of an image", &[crate::Need::Tool(tool)]) {
            return;
        }
        let folder = crate::scratch();
        let path = write(&self.device, &folder);
        crate::judge(path);
    }
}

/// Runs a test on an image of each format, which must be sound afterwards.
pub fn on_both_formats(test: impl Fn(&MemoryImage)) {
    for image in [MemoryImage::ext4(), MemoryImage::xfs()] {
        test(&image);
        image.judge();
    }
}

/// Writes a closed image into a file.
fn write(device: &MemoryDevice, folder: &TempDir) -> PathBuf {
    let path = folder.path().join("image");
    let file = File::create_new(&path).unwrap();
    file.set_len(SIZE).unwrap();
    device.for_each_part(|offset, bytes| file.write_all_at(bytes, offset)).unwrap();
    path
}
