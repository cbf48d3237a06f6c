//! Shared by the tests: images of both formats in memory, and a server for them.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

mod client;
mod xdr;

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::MemoryDevice;
use ext4::Ext4;
use nfs::{NfsCallers, NfsOptions, NfsServer, ServedOutcome};
use tempfile::TempDir;
use vfs::FileSystem;
use xfs::Xfs;

pub use client::{CreateHow, Handle, MOUNT, NFS, NewAttr, NfsClient, Wcc, record};
pub use xdr::Message;

const SIZE: u64 = 64 << 20;
const CACHE_BYTES: usize = 8 << 20;

pub const UUID: [u8; 16] = *b"0123456789abcdef";
pub const EXPORT: &str = "/export";

/// Statuses of replies.
pub const OK: u32 = 0;
pub const PERM: u32 = 1;
pub const NOENT: u32 = 2;
pub const IO: u32 = 5;
pub const ACCES: u32 = 13;
pub const EXIST: u32 = 17;
pub const NOTDIR: u32 = 20;
pub const ISDIR: u32 = 21;
pub const INVAL: u32 = 22;
pub const FBIG: u32 = 27;
pub const ROFS: u32 = 30;
pub const NAMETOOLONG: u32 = 63;
pub const NOTEMPTY: u32 = 66;
pub const STALE: u32 = 70;
pub const BADHANDLE: u32 = 10_001;
pub const NOT_SYNC: u32 = 10_002;
pub const BAD_COOKIE: u32 = 10_003;
pub const TOOSMALL: u32 = 10_005;
pub const BADTYPE: u32 = 10_007;

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
    pub fn ext4() -> Self {
        let options = ext4::mkfs::Options::new(SIZE);
        let device = Arc::new(MemoryDevice::new(SIZE));
        let layout = ext4::mkfs::plan(&options).unwrap();
        ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros).unwrap();
        Ext4::open_in_progress(device.clone(), CACHE_BYTES).unwrap().finish(None).unwrap();
        let fs = Ext4::open_writable(device.clone(), &ext4::OpenOptions::default()).unwrap();
        Self { name: "ext4", device, fs: OpenImage::Ext4(Box::new(fs)) }
    }

    pub fn xfs() -> Self {
        let options = xfs::mkfs::Options { allow_small: true, ..xfs::mkfs::Options::new(SIZE) };
        let device = Arc::new(MemoryDevice::new(SIZE));
        let layout = xfs::mkfs::plan(&options).unwrap();
        xfs::mkfs::format(&*device, &layout, xfs::mkfs::PreviousContents::Zeros).unwrap();
        Xfs::open_in_progress(device.clone(), CACHE_BYTES).unwrap().finish(None).unwrap();
        let fs = Xfs::open_writable(device.clone(), &xfs::OpenOptions::default()).unwrap();
        Self { name: "XFS", device, fs: OpenImage::Xfs(Box::new(fs)) }
    }

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
        let folder = testkit::scratch();
        let path = write(&self.device, &folder);
        testkit::debugfs_write(&path, request);
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
        if !testkit::satisfied("the judgement of an image", &[testkit::Need::Tool(tool)]) {
            return;
        }
        let folder = testkit::scratch();
        let path = write(&self.device, &folder);
        testkit::judge(path);
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

/// Returns the options of a writable export at [`EXPORT`] that checks no permissions.
pub fn options() -> NfsOptions {
    NfsOptions::new(EXPORT.parse().unwrap(), UUID)
}

/// Returns the options of an export that checks permissions.
pub fn checked() -> NfsOptions {
    NfsOptions { callers: NfsCallers::Checked, ..options() }
}

/// Runs a test on an image of each format, which must be sound afterwards.
pub fn on_both(test: impl Fn(&MemoryImage)) {
    for image in [MemoryImage::ext4(), MemoryImage::xfs()] {
        test(&image);
        image.judge();
    }
}

/// Runs a test with a client of an image of each format, which must be sound afterwards.
pub fn served(options: &NfsOptions, test: impl Fn(&mut NfsClient, &Handle)) {
    on_both(|image| {
        serve(image, options, |address| {
            let mut client = NfsClient::connect(address);
            let root = client.mount(EXPORT).unwrap();
            test(&mut client, &root);
        });
    });
}

/// Sets a flag, also when a test panics.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves an image during a test.
pub fn serve(
    image: &MemoryImage,
    options: &NfsOptions,
    test: impl FnOnce(SocketAddr),
) -> ServedOutcome {
    let server = NfsServer::bind("127.0.0.1:0".parse().unwrap(), options.clone()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(image.fs(), &stop).unwrap());
        let stopped = Stop(&stop);
        test(server.address());
        drop(stopped);
        serving.join().unwrap()
    })
}
