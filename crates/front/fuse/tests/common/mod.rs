//! Shared by the tests: new images of both formats, and requests as the kernel sends them.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::MemoryDevice;
use ext4::Ext4;
use fuse::{Adapter, Options};
use linux::abi::{
    Attr, AttrOut, CreateIn, EntryOut, GetattrIn, InHeader, MkdirIn, MknodIn, ROOT_ID, SetattrIn,
};
use linux::{
    Errno, Handler, MountOptions, Operation, Reply, Request, Session, SessionOptions, Unmounter,
};
use tempfile::TempDir;
use vfs::FileSystem;
use xfs::Xfs;
use zerocopy::FromBytes;

const SIZE: u64 = 64 << 20;
const CACHE_BYTES: usize = 8 << 20;

pub const S_IFREG: u32 = 0o100_000;

/// A new image.
pub struct NewImage {
    /// Name in messages.
    pub name: &'static str,
    device: Arc<MemoryDevice>,
    fs: Opened,
}

enum Opened {
    Ext4(Box<Ext4>),
    Xfs(Box<Xfs>),
}

impl NewImage {
    pub fn ext4() -> Self {
        let options = ext4::mkfs::Options::new(SIZE);
        let device = Arc::new(MemoryDevice::new(SIZE));
        let layout = ext4::mkfs::plan(&options).unwrap();
        ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros).unwrap();
        let fs = Ext4::open_in_progress(device.clone(), CACHE_BYTES).unwrap();
        Self { name: "ext4", device, fs: Opened::Ext4(Box::new(fs)) }
    }

    pub fn xfs() -> Self {
        Self::xfs_with("")
    }

    /// With changes to mkfs's default features.
    pub fn xfs_with(features: &str) -> Self {
        let options = xfs::mkfs::Options {
            features: xfs::mkfs::FeatureChange::parse_list(features).unwrap(),
            allow_small: true,
            ..xfs::mkfs::Options::new(SIZE)
        };
        let device = Arc::new(MemoryDevice::new(SIZE));
        let layout = xfs::mkfs::plan(&options).unwrap();
        xfs::mkfs::format(&*device, &layout, xfs::mkfs::PreviousContents::Zeros).unwrap();
        let fs = Xfs::open_in_progress(device.clone(), CACHE_BYTES).unwrap();
        Self { name: "XFS", device, fs: Opened::Xfs(Box::new(fs)) }
    }

    pub fn fs(&self) -> &dyn FileSystem {
        match &self.fs {
            Opened::Ext4(fs) => &**fs,
            Opened::Xfs(fs) => &**fs,
        }
    }

    /// Closes the image and runs the checker of its format, if there is one.
    pub fn judge(self) {
        match &self.fs {
            Opened::Ext4(fs) => fs.finish(None).unwrap(),
            Opened::Xfs(fs) => fs.finish(None).unwrap(),
        }
        let tool = match self.fs {
            Opened::Ext4(_) => "e2fsck",
            Opened::Xfs(_) => "xfs_repair",
        };
        if !testkit::satisfied("the judgement of an image", &[testkit::Need::Tool(tool)]) {
            return;
        }
        let folder = testkit::scratch();
        testkit::judge(self.write(&folder));
    }

    /// Writes a finished image into a file.
    fn write(&self, folder: &TempDir) -> PathBuf {
        let path = folder.path().join("image");
        let file = File::create_new(&path).unwrap();
        file.set_len(SIZE).unwrap();
        self.device.for_each_part(|offset, bytes| file.write_all_at(bytes, offset)).unwrap();
        path
    }

    /// Returns the ext4 image after a request of debugfs.
    pub fn changed_by_debugfs(self, request: &str) -> Self {
        let Opened::Ext4(fs) = &self.fs else { panic!("not ext4") };
        fs.finish(None).unwrap();
        let folder = testkit::scratch();
        let path = self.write(&folder);
        testkit::debugfs_write(&path, request);
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
        let fs = Ext4::open_writable(device.clone(), &ext4::OpenOptions::default()).unwrap();
        Self { device, fs: Opened::Ext4(Box::new(fs)), ..self }
    }
}

/// Runs a test on an image of each format, which must be sound afterwards.
pub fn on_both(test: impl Fn(&NewImage)) {
    for image in [NewImage::ext4(), NewImage::xfs()] {
        test(&image);
        image.judge();
    }
}

/// Sends the kernel's requests on behalf of one user.
pub struct Caller<'a> {
    pub adapter: Adapter<'a>,
    pub uid: u32,
    pub gid: u32,
    pub umask: u32,
}

impl<'a> Caller<'a> {
    /// Returns a client of the superuser.
    pub fn new(image: &'a NewImage) -> Self {
        Self::with(image, Options::default())
    }

    pub fn with(image: &'a NewImage, options: Options) -> Self {
        Self { adapter: Adapter::new(image.fs(), options), uid: 0, gid: 0, umask: 0 }
    }

    /// Returns the answer to a request.
    pub fn ask(&self, nodeid: u64, operation: Operation<'_>) -> Result<Vec<u8>, Errno> {
        self.ask_with_room(nodeid, operation, 1 << 17)
    }

    /// Returns the answer to a request with an answer buffer of `room` bytes.
    pub fn ask_with_room(
        &self,
        nodeid: u64,
        operation: Operation<'_>,
        room: usize,
    ) -> Result<Vec<u8>, Errno> {
        let header = InHeader { nodeid, uid: self.uid, gid: self.gid, ..InHeader::default() };
        let mut buffer = vec![0xee; room];
        let mut reply = Reply::new(&mut buffer);
        self.adapter.handle(&Request { header, operation }, &mut reply)?;
        Ok(reply.as_bytes().to_vec())
    }

    pub fn entry(&self, nodeid: u64, operation: Operation<'_>) -> Result<EntryOut, Errno> {
        Ok(EntryOut::read_from_prefix(&self.ask(nodeid, operation)?).unwrap().0)
    }

    pub fn lookup(&self, dir: u64, name: &str) -> Result<EntryOut, Errno> {
        self.entry(dir, Operation::Lookup { name: name.as_bytes() })
    }

    /// Looks up a name without side effects. Returns `None` if it does not exist.
    pub fn find(&self, dir: u64, name: &str) -> Option<u64> {
        let entry = self.lookup(dir, name).unwrap();
        self.forget(entry.nodeid, 1);
        (entry.nodeid != 0).then_some(entry.nodeid)
    }

    pub fn mknod(&self, dir: u64, name: &str, mode: u32, rdev: u32) -> Result<EntryOut, Errno> {
        let args = MknodIn { mode, rdev, umask: self.umask, padding: 0 };
        self.entry(dir, Operation::Mknod { args, name: name.as_bytes() })
    }

    /// Creates a regular file.
    pub fn create(&self, dir: u64, name: &str) -> EntryOut {
        self.mknod(dir, name, S_IFREG | 0o644, 0).unwrap()
    }

    pub fn mkdir(&self, dir: u64, name: &str, mode: u32) -> Result<EntryOut, Errno> {
        let args = MkdirIn { mode, umask: self.umask };
        self.entry(dir, Operation::Mkdir { args, name: name.as_bytes() })
    }

    pub fn symlink(&self, dir: u64, name: &str, target: &str) -> Result<EntryOut, Errno> {
        let (name, target) = (name.as_bytes(), target.as_bytes());
        self.entry(dir, Operation::Symlink { name, target })
    }

    pub fn tmpfile(&self, dir: u64, mode: u32) -> Result<EntryOut, Errno> {
        let args = CreateIn { flags: 0, mode: S_IFREG | mode, umask: self.umask, open_flags: 0 };
        self.entry(dir, Operation::Tmpfile { args })
    }

    pub fn link(&self, node: u64, dir: u64, name: &str) -> Result<EntryOut, Errno> {
        self.entry(dir, Operation::Link { oldnodeid: node, name: name.as_bytes() })
    }

    pub fn unlink(&self, dir: u64, name: &str) -> Result<(), Errno> {
        self.ask(dir, Operation::Unlink { name: name.as_bytes() }).map(drop)
    }

    pub fn rmdir(&self, dir: u64, name: &str) -> Result<(), Errno> {
        self.ask(dir, Operation::Rmdir { name: name.as_bytes() }).map(drop)
    }

    pub fn rename(&self, from: (u64, &str), to: (u64, &str), flags: u32) -> Result<(), Errno> {
        let (name, newname) = (from.1.as_bytes(), to.1.as_bytes());
        self.ask(from.0, Operation::Rename { newdir: to.0, flags, name, newname }).map(drop)
    }

    pub fn forget(&self, node: u64, nlookup: u64) {
        self.ask(node, Operation::Forget { nlookup }).unwrap();
    }

    pub fn attr(&self, node: u64) -> Result<Attr, Errno> {
        let answer = self.ask(node, Operation::Getattr(GetattrIn::default()))?;
        Ok(AttrOut::read_from_bytes(&answer).unwrap().attr)
    }

    pub fn setattr(&self, node: u64, args: SetattrIn) -> Result<Attr, Errno> {
        let answer = self.ask(node, Operation::Setattr(args))?;
        Ok(AttrOut::read_from_bytes(&answer).unwrap().attr)
    }

    /// Returns the number of free inodes.
    pub fn inodes_free(&self) -> u64 {
        let answer = self.ask(ROOT_ID, Operation::Statfs).unwrap();
        linux::abi::Kstatfs::read_from_bytes(&answer).unwrap().ffree
    }
}

/// Mounts an image, for a test that sees its path.
pub fn mounted(image: &NewImage, options: Options, test: impl FnOnce(&Path)) {
    mounted_fs(image.fs(), options, test);
}

/// Mounts a file system, for a test that sees its path.
pub fn mounted_fs(fs: &dyn FileSystem, options: Options, test: impl FnOnce(&Path)) {
    mounted_handler(&Adapter::new(fs, options), options.read_only, test);
}

/// Mounts a handler, for a test that sees its path.
pub fn mounted_handler(handler: &dyn Handler, read_only: bool, test: impl FnOnce(&Path)) {
    let folder = tempfile::Builder::new().prefix("diskwright-fuse-").tempdir().unwrap();
    let mount_options = MountOptions {
        fs_name: "test".into(),
        subtype: "diskwright".into(),
        allow_other: true,
        suid: true,
        dev: true,
        read_only,
        ..MountOptions::default()
    };
    let session = Session::mount(folder.path(), &mount_options).unwrap();
    let served = SessionOptions { threads: 2, io_uring: false };
    std::thread::scope(|scope| {
        let unmount = Unmount(session.unmounter());
        let (is_ready, ready) = std::sync::mpsc::channel();
        let serve = move || session.serve(handler, &served, || is_ready.send(()).unwrap());
        let server = scope.spawn(serve);
        ready.recv().expect("the session starts");
        test(folder.path());
        drop(unmount);
        server.join().unwrap().unwrap();
    });
}

/// Unmounts, also when a test panics.
struct Unmount(Unmounter);

impl Drop for Unmount {
    fn drop(&mut self) {
        let unmounted = self.0.unmount();
        assert!(unmounted.is_ok() || std::thread::panicking(), "{unmounted:?}");
    }
}
