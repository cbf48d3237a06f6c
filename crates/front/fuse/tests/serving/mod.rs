//! Shared by the tests of data: file systems in memory of many kinds, and a client for contents, listings and extended
//! attributes.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part")]

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use disk::{BlockDevice, FaultyDevice, MemoryDevice};
use ext4::Ext4;
use fuse::{Adapter, Options};
use linux::abi::{
    Attr, CopyFileRangeIn, CopyFileRangeOut, Dirent, EntryOut, FATTR_ATIME, FATTR_CTIME,
    FATTR_MODE, FATTR_MTIME, FATTR_SIZE, FallocateIn, FsyncIn, GetxattrOut, LseekIn, LseekOut,
    ROOT_ID, ReadIn, SetattrIn, SetxattrIn, WriteIn, WriteOut, padded,
};
use linux::{Errno, Operation};
use vfs::FileSystem;
use xfs::Xfs;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::common::Caller;

pub const MIB: u64 = 1 << 20;
/// Size of an image, and of the metadata cache.
const SIZE: u64 = 64 * MIB;
const CACHE_BYTES: usize = 8 << 20;

pub const SEEK_DATA: u32 = 3;
pub const SEEK_HOLE: u32 = 4;

/// Size of the largest answer.
const REPLY_BYTES: usize = (1 << 20) + 4096;

/// A kind of file system.
#[derive(Clone, Copy, Debug)]
pub struct FsKind {
    is_xfs: bool,
    block_size: u32,
    /// Changes to mkfs's default features.
    features: &'static str,
}

pub const EXT4: FsKind = FsKind { is_xfs: false, block_size: 4096, features: "" };
pub const XFS: FsKind = FsKind { is_xfs: true, block_size: 4096, features: "" };
pub const XFS_PLAIN: FsKind = FsKind { features: "-parent,-exchange", ..XFS };
pub const KINDS: [FsKind; 2] = [EXT4, XFS];

/// Kinds that differ in the maps and storage of file contents.
pub const CONTENT_KINDS: [FsKind; 6] = [
    EXT4,
    FsKind { block_size: 1024, ..EXT4 },
    FsKind { block_size: 1024, features: "^extents,^64bit,^flex_bg", ..EXT4 },
    FsKind { features: "inline_data", ..EXT4 },
    XFS,
    FsKind { block_size: 1024, ..XFS },
];

/// A file system open for writing, with its device.
pub struct ServedImage {
    pub kind: FsKind,
    memory: Arc<MemoryDevice>,
    /// Counts the allocated memory.
    pub device: Arc<FaultyDevice>,
    fs: Fs,
}

enum Fs {
    Ext4(Box<Ext4>),
    Xfs(Box<Xfs>),
}

impl ServedImage {
    pub fn new(kind: FsKind) -> Self {
        let memory = Arc::new(if kind.is_xfs { make_xfs(kind) } else { make_ext4(kind) });
        let device = Arc::new(FaultyDevice::new(memory.clone()));
        let fs = if kind.is_xfs {
            Fs::Xfs(Box::new(Xfs::open_in_progress(device.clone(), CACHE_BYTES).unwrap()))
        } else {
            Fs::Ext4(Box::new(open_ext4(&device)))
        };
        Self { kind, memory, device, fs }
    }

    pub fn fs(&self) -> &dyn FileSystem {
        match &self.fs {
            Fs::Ext4(fs) => &**fs,
            Fs::Xfs(fs) => &**fs,
        }
    }

    /// Returns the device after a crash.
    pub fn crashed(&self) -> MemoryDevice {
        self.memory.fork()
    }

    fn close(fs: Fs) {
        match fs {
            Fs::Ext4(fs) => fs.close().unwrap(),
            Fs::Xfs(fs) => fs.finish(None).unwrap(),
        }
    }

    /// Damages the inode of a regular file, which gets a unique size, and reopens the image: XFS, which can write to
    /// new images only, for reading.
    pub fn with_damage(self, node: u64) -> Self {
        const MARK: u32 = 0x1234_5678;
        Client::new(self.fs(), Options::default()).truncate(node, MARK.into()).unwrap();
        let Self { kind, memory, device, fs } = self;
        Self::close(fs);
        let pattern = if kind.is_xfs { MARK.to_be_bytes() } else { MARK.to_le_bytes() };
        let mut marks = Vec::new();
        let each = |offset: u64, bytes: &[u8]| {
            let found = bytes.windows(4).enumerate().filter(|(_, window)| *window == pattern);
            marks.extend(found.map(|(at, _)| offset + at as u64));
            Ok::<_, std::io::Error>(())
        };
        memory.for_each_part(each).unwrap();
        assert!(!marks.is_empty(), "the inode is found by its size");
        for mark in marks {
            memory.write_at(mark, &[0xff]).unwrap();
        }
        let fs = if kind.is_xfs {
            let options = xfs::OpenOptions::default();
            Fs::Xfs(Box::new(Xfs::open(device.clone(), &options).unwrap()))
        } else {
            Fs::Ext4(Box::new(open_ext4(&device)))
        };
        Self { kind, memory, device, fs }
    }

    /// Closes the image and runs the checker of its format, if there is one.
    fn judge(self) {
        let tool = if self.kind.is_xfs { "xfs_repair" } else { "e2fsck" };
        Self::close(self.fs);
        if !testkit::satisfied("the judgement of an image", &[testkit::Need::Tool(tool)]) {
            return;
        }
        let folder = testkit::scratch();
        let path = folder.path().join("image");
        let file = File::create_new(&path).unwrap();
        file.set_len(SIZE).unwrap();
        self.memory.for_each_part(|offset, bytes| file.write_all_at(bytes, offset)).unwrap();
        testkit::judge(&path);
    }
}

/// Runs a test on an image of each kind, which must be sound afterwards.
pub fn on_each(kinds: &[FsKind], test: impl Fn(&ServedImage)) {
    for &kind in kinds {
        let image = ServedImage::new(kind);
        test(&image);
        image.judge();
    }
}

/// Files wait in each directory with an index, few at a time.
const SOON: ext4::DeferPolicy = ext4::DeferPolicy {
    blocks_min: 2,
    streak_per_block: 0,
    files_max: 60,
    parts: 4,
    blocks_per_part: 1,
};

fn open_ext4(device: &Arc<FaultyDevice>) -> Ext4 {
    let cache_bytes = CACHE_BYTES;
    let options =
        ext4::OpenOptions { cache_bytes, defer_creates: Some(SOON), ..Default::default() };
    Ext4::open_writable(device.clone(), &options).unwrap()
}

fn make_ext4(kind: FsKind) -> MemoryDevice {
    use ext4::mkfs::{self, FeatureChange, InodeCount, Options, PreviousContents};
    let options = Options {
        block_size: Some(kind.block_size),
        inodes: InodeCount::Count(4096),
        features: FeatureChange::parse_list(kind.features).unwrap(),
        ..Options::new(SIZE)
    };
    let device = MemoryDevice::new(SIZE);
    mkfs::format(&device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    device
}

fn make_xfs(kind: FsKind) -> MemoryDevice {
    use xfs::mkfs::{self, FeatureChange, Options, PreviousContents};
    let options = Options {
        block_size: kind.block_size,
        features: FeatureChange::parse_list(kind.features).unwrap(),
        allow_small: true,
        ..Options::new(SIZE)
    };
    let device = MemoryDevice::new(SIZE);
    mkfs::format(&device, &mkfs::plan(&options).unwrap(), PreviousContents::Zeros).unwrap();
    device
}

/// Sends the kernel's requests, including those for contents, listings and extended attributes.
pub struct Client<'a>(pub Caller<'a>);

impl<'a> Deref for Client<'a> {
    type Target = Caller<'a>;

    fn deref(&self) -> &Caller<'a> {
        &self.0
    }
}

/// A record of a listing.
#[derive(Clone, Debug)]
pub struct ListedRecord {
    pub name: Vec<u8>,
    pub dirent: Dirent,
    /// Set for READDIRPLUS only.
    pub entry: Option<EntryOut>,
}

type Reply<T> = Result<T, Errno>;

impl<'a> Client<'a> {
    pub fn new(fs: &'a dyn FileSystem, options: Options) -> Self {
        Self(Caller { adapter: Adapter::new(fs, options), uid: 0, gid: 0, umask: 0 })
    }

    fn ask_for<T: FromBytes + KnownLayout + Immutable>(
        &self,
        nodeid: u64,
        operation: Operation<'_>,
    ) -> Reply<T> {
        let answer = self.ask(nodeid, operation)?;
        Ok(T::read_from_bytes(&answer).expect("an answer of its size"))
    }

    /// Creates a file in the root; returns its node.
    pub fn file(&self, name: &str) -> u64 {
        self.create(ROOT_ID, name).nodeid
    }

    /// Creates a directory; returns its node.
    pub fn directory(&self, dir: u64, name: &str) -> u64 {
        self.mkdir(dir, name, 0o755).unwrap().nodeid
    }

    pub fn getattr(&self, node: u64) -> Attr {
        self.attr(node).unwrap()
    }

    fn change(&self, node: u64, args: SetattrIn) -> Reply<()> {
        self.ask(node, Operation::Setattr(args)).map(drop)
    }

    /// Sets access, modification and change times, in seconds.
    pub fn set_times(&self, node: u64, atime: u64, mtime: u64, ctime: u64) {
        let valid = FATTR_ATIME | FATTR_MTIME | FATTR_CTIME;
        let args = SetattrIn { valid, atime, mtime, ctime, ..SetattrIn::default() };
        self.change(node, args).unwrap();
    }

    pub fn chmod(&self, node: u64, permissions: u32) {
        let mode = self.getattr(node).mode & 0o170_000 | permissions;
        let args = SetattrIn { valid: FATTR_MODE, mode, ..SetattrIn::default() };
        self.change(node, args).unwrap();
    }

    pub fn truncate(&self, node: u64, size: u64) -> Reply<()> {
        self.change(node, SetattrIn { valid: FATTR_SIZE, size, ..SetattrIn::default() })
    }

    pub fn read(&self, node: u64, offset: u64, size: u32) -> Reply<Vec<u8>> {
        let args = ReadIn { offset, size, ..ReadIn::default() };
        self.ask_with_room(node, Operation::Read(args), REPLY_BYTES)
    }

    pub fn write(&self, node: u64, offset: u64, data: &[u8], write_flags: u32) -> Reply<()> {
        let size = data.len() as u32;
        let args = WriteIn { offset, size, write_flags, ..WriteIn::default() };
        let answer: WriteOut = self.ask_for(node, Operation::Write { args, data })?;
        assert_eq!(answer.size, size, "all is written");
        Ok(())
    }

    pub fn fallocate(&self, node: u64, mode: u32, offset: u64, length: u64) -> Reply<()> {
        let args = FallocateIn { mode, offset, length, ..FallocateIn::default() };
        self.ask(node, Operation::Fallocate(args)).map(drop)
    }

    pub fn lseek(&self, node: u64, offset: u64, whence: u32) -> Reply<u64> {
        let args = LseekIn { offset, whence, ..LseekIn::default() };
        Ok(self.ask_for::<LseekOut>(node, Operation::Lseek(args))?.offset)
    }

    /// Copies `len` bytes, with the 64-bit request or the old one.
    pub fn copy(&self, from: (u64, u64), to: (u64, u64), len: u64, wide: bool) -> Reply<u64> {
        let args = CopyFileRangeIn {
            off_in: from.1,
            nodeid_out: to.0,
            off_out: to.1,
            len,
            ..CopyFileRangeIn::default()
        };
        let operation = Operation::CopyFileRange { args, wide };
        if wide {
            return Ok(self.ask_for::<CopyFileRangeOut>(from.0, operation)?.bytes_copied);
        }
        Ok(self.ask_for::<WriteOut>(from.0, operation)?.size.into())
    }

    pub fn fsync(&self, node: u64) -> Reply<()> {
        self.ask(node, Operation::Fsync(FsyncIn::default())).map(drop)
    }

    pub fn syncfs(&self) -> Reply<()> {
        self.ask(ROOT_ID, Operation::Syncfs).map(drop)
    }

    pub fn readdir(&self, dir: u64, offset: u64, size: u32) -> Reply<Vec<ListedRecord>> {
        let args = ReadIn { offset, size, ..ReadIn::default() };
        let answer = self.ask(dir, Operation::Readdir(args))?;
        assert!(answer.len() <= size as usize, "more than was asked for");
        Ok(records(&answer, false))
    }

    pub fn readdirplus(&self, dir: u64, offset: u64, size: u32) -> Reply<Vec<ListedRecord>> {
        let args = ReadIn { offset, size, ..ReadIn::default() };
        let answer = self.ask(dir, Operation::Readdirplus(args))?;
        assert!(answer.len() <= size as usize, "more than was asked for");
        Ok(records(&answer, true))
    }

    /// Returns the value. Requests its length first, as programs do.
    pub fn getxattr(&self, node: u64, name: &[u8]) -> Reply<Vec<u8>> {
        let operation = Operation::Getxattr { size: 0, name };
        let size = self.ask_for::<GetxattrOut>(node, operation)?.size;
        if size == 0 {
            return Ok(Vec::new());
        }
        self.ask(node, Operation::Getxattr { size, name })
    }

    /// Returns the names.
    pub fn listxattr(&self, node: u64) -> Reply<Vec<Vec<u8>>> {
        let names = self.ask(node, Operation::Listxattr { size: 1 << 16 })?;
        let Some(names) = names.strip_suffix(&[0]) else { return Ok(Vec::new()) };
        Ok(names.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect())
    }

    pub fn setxattr(&self, node: u64, name: &[u8], value: &[u8]) -> Reply<()> {
        self.setxattr_with(node, name, value, 0, 0)
    }

    pub fn setxattr_with(
        &self,
        node: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
        setxattr_flags: u32,
    ) -> Reply<()> {
        let size = value.len() as u32;
        let args = SetxattrIn { size, flags, setxattr_flags, padding: 0 };
        self.ask(node, Operation::Setxattr { args, name, value }).map(drop)
    }

    pub fn removexattr(&self, node: u64, name: &[u8]) -> Reply<()> {
        self.ask(node, Operation::Removexattr { name }).map(drop)
    }
}

/// Parses a listing.
fn records(mut answer: &[u8], plus: bool) -> Vec<ListedRecord> {
    let mut records = Vec::new();
    while !answer.is_empty() {
        let record = answer;
        let mut entry = None;
        let mut rest = answer;
        if plus {
            let (head, after) = EntryOut::read_from_prefix(rest).unwrap();
            (entry, rest) = (Some(head), after);
        }
        let (dirent, rest) = Dirent::read_from_prefix(rest).unwrap();
        let name = rest[..dirent.namelen as usize].to_vec();
        let len = padded(record.len() - rest.len() + name.len());
        assert!(record[record.len() - rest.len() + name.len()..len].iter().all(|&byte| byte == 0));
        records.push(ListedRecord { name, dirent, entry });
        answer = &record[len..];
    }
    records
}

/// Returns pseudo-random bytes.
pub fn pattern(seed: u8, len: usize) -> Vec<u8> {
    let step = |at: usize| (at as u32).wrapping_mul(2_654_435_761) >> 13;
    // No byte is zero, so that data never looks like a hole.
    (0..len).map(|at| (step(at) as u8 ^ seed).max(1)).collect()
}
