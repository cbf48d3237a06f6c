//! Reads that the kernel splices from the image: the same bytes as copied reads, never those of another file, and
//! errors if nothing can be spliced.

use crate::common;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use common::mounted_fs;
use disk::{BlockDevice, FileDevice};
use ext4::Ext4;
use fuse::Options;
use linux::Errno;
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use tempfile::TempDir;
use testkit::require;
use vfs::{FileSystem, NewInode, SetAttributes, Timestamp};
use xfs::Xfs;

const SIZE: u64 = 128 << 20;
const CACHE_BYTES: usize = 8 << 20;
const PAGE: usize = 4096;
/// Minimum size of reads that are not copied.
const LARGE: usize = 64 << 10;

/// An image in a file, which counts copied reads.
struct CountedDevice {
    inner: FileDevice,
    /// Number of bytes read in large pieces.
    copied: AtomicU64,
    /// Number of requests for the location of bytes.
    told: AtomicU64,
    /// Number of bytes written in large pieces.
    stored: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
}

impl BlockDevice for CountedDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if buf.len() >= LARGE {
            self.copied.fetch_add(buf.len() as u64, Ordering::Relaxed);
        }
        self.inner.read_at(offset, buf)
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        self.told.fetch_add(1, Ordering::Relaxed);
        self.inner.in_file(offset, len)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.len() >= LARGE {
            self.stored.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flush()
    }
}

enum OpenedFs {
    Ext4(Box<Ext4>),
    Xfs(Box<Xfs>),
}

/// An image in a file, opened as for a mount.
struct InFile {
    folder: TempDir,
    device: Arc<CountedDevice>,
    fs: OpenedFs,
}

impl InFile {
    fn device() -> (TempDir, Arc<CountedDevice>) {
        let folder = testkit::scratch();
        let path = folder.path().join("image");
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        file.set_len(SIZE).unwrap();
        let inner = FileDevice::new(file).unwrap();
        let [copied, told, stored, writes, flushes] = [(); 5].map(|()| AtomicU64::new(0));
        (folder, Arc::new(CountedDevice { inner, copied, told, stored, writes, flushes }))
    }

    fn ext4(block_size: u32) -> Self {
        let (folder, device) = Self::device();
        let options =
            ext4::mkfs::Options { block_size: Some(block_size), ..ext4::mkfs::Options::new(SIZE) };
        let layout = ext4::mkfs::plan(&options).unwrap();
        ext4::mkfs::format(&*device, &layout, ext4::mkfs::PreviousContents::Zeros).unwrap();
        let options = ext4::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
        let fs = Ext4::open_writable(device.clone(), &options).unwrap();
        Self { folder, device, fs: OpenedFs::Ext4(Box::new(fs)) }
    }

    fn xfs() -> Self {
        let (folder, device) = Self::device();
        let options = xfs::mkfs::Options { allow_small: true, ..xfs::mkfs::Options::new(SIZE) };
        let layout = xfs::mkfs::plan(&options).unwrap();
        xfs::mkfs::format(&*device, &layout, xfs::mkfs::PreviousContents::Zeros).unwrap();
        let options = xfs::OpenOptions { cache_bytes: CACHE_BYTES, ..Default::default() };
        let fs = Xfs::open_writable(device.clone(), &options).unwrap();
        Self { folder, device, fs: OpenedFs::Xfs(Box::new(fs)) }
    }

    fn all() -> [Self; 3] {
        [Self::ext4(4096), Self::ext4(1024), Self::xfs()]
    }

    fn fs(&self) -> &dyn FileSystem {
        match &self.fs {
            OpenedFs::Ext4(fs) => &**fs,
            OpenedFs::Xfs(fs) => &**fs,
        }
    }

    /// Returns the contents of a file in the root after a crash at this point.
    fn after_a_crash(&self, name: &[u8]) -> Vec<u8> {
        let path = self.folder.path().join("crashed");
        fs::copy(self.folder.path().join("image"), &path).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let device = Arc::new(FileDevice::new(file).unwrap());
        let fs: Box<dyn FileSystem> = match self.fs {
            OpenedFs::Ext4(_) => {
                Box::new(Ext4::open_writable(device, &ext4::OpenOptions::default()).unwrap())
            }
            OpenedFs::Xfs(_) => {
                Box::new(Xfs::open_writable(device, &xfs::OpenOptions::default()).unwrap())
            }
        };
        let ino = fs.lookup(fs.root(), name).unwrap();
        let mut bytes = vec![0; fs.attributes(ino).unwrap().size as usize];
        assert_eq!(fs.read(ino, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    fn close(self) {
        match self.fs {
            OpenedFs::Ext4(fs) => fs.close().unwrap(),
            OpenedFs::Xfs(fs) => fs.close().unwrap(),
        }
        testkit::judge(self.folder.path().join("image"));
    }
}

fn direct(path: &Path) -> File {
    let flags = OFlags::DIRECT.bits() as i32;
    File::options().read(true).write(true).create(true).custom_flags(flags).open(path).unwrap()
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at / 7 * 31 + at * 3 + seed) % 251) as u8 + 1).collect()
}

#[test]
fn large_reads_are_copied_by_nobody_and_tell_the_same() {
    require!(Root, Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    for image in InFile::all() {
        mounted_fs(image.fs(), Options::default(), |root| {
            let path = root.join("file");
            // Not whole pages.
            let expected = pattern(1, (5 << 20) + 777);
            fs::write(&path, &expected).unwrap();
            let file = direct(&path);
            file.sync_all().unwrap();
            let before = image.device.copied.load(Ordering::Relaxed);
            let told = image.device.told.load(Ordering::Relaxed);
            for (offset, len) in [
                (0, 5 << 20),
                (1 << 20, 1 << 20),
                (4096, 100_000),
                (4097, 99_999),
                (3 * 1024, 1 << 18),
                (511, 70_001),
                ((4 << 20) + 5, 1 << 20),
            ] {
                let mut found = vec![0xee; len];
                let there = len.min(expected.len() - offset);
                assert_eq!(file.read_at(&mut found, offset as u64).unwrap(), there, "{offset}");
                assert!(found[..there] == expected[offset..][..there], "{offset}, {len}");
            }
            assert_eq!(image.device.copied.load(Ordering::Relaxed), before);
            assert!(image.device.told.load(Ordering::Relaxed) > told);
        });
        image.close();
    }
}

#[test]
fn holes_and_what_was_never_written_are_zeros() {
    require!(Root, Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    for image in InFile::all() {
        mounted_fs(image.fs(), Options::default(), |root| {
            let file = direct(&root.join("file"));
            let mut expected = vec![0; 3 << 20];
            fallocate(&file, FallocateFlags::empty(), 1 << 20, 1 << 20).unwrap();
            file.set_len(3 << 20).unwrap();
            // Many pieces, some of them adjacent.
            for at in (0..3 << 20).step_by(3 * PAGE) {
                let bytes = pattern(at as u64, if at % 2 == 0 { PAGE } else { 2 * PAGE });
                let bytes = &bytes[..bytes.len().min(expected.len() - at)];
                file.write_all_at(bytes, at as u64).unwrap();
                expected[at..][..bytes.len()].copy_from_slice(bytes);
            }
            let mut found = vec![0xee; expected.len()];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == expected);
            assert!(fs::read(root.join("file")).unwrap() == expected);
        });
        image.close();
    }
}

#[test]
fn an_image_that_was_cut_gives_errors_and_the_mount_goes_on() {
    require!(Root, Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    for image in InFile::all() {
        mounted_fs(image.fs(), Options::default(), |root| {
            let path = root.join("file");
            let expected = pattern(3, 8 << 20);
            let file = direct(&path);
            // One request after the other. The kernel writes back cached parts in any order, and the file would not be
            // in one piece.
            for (part, at) in expected.chunks(1 << 20).zip((0..).step_by(1 << 20)) {
                file.write_all_at(part, at).unwrap();
            }
            file.sync_all().unwrap();
            let mut bytes = Vec::new();
            let place = image.folder.path().join("image");
            File::open(&place)
                .and_then(|mut file| io::Read::read_to_end(&mut file, &mut bytes))
                .unwrap();
            let start = find(&bytes, &expected[..PAGE]);
            // In the middle of the file, and of a page.
            let host = image.device.inner.file();
            host.set_len(start + (1 << 20) + 100).unwrap();
            let mut found = vec![0; 1 << 19];
            for _ in 0..3 {
                let error = file.read_at(&mut found, (1 << 20) - 4096).unwrap_err();
                assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
                file.read_exact_at(&mut found, 0).unwrap();
                assert!(found == expected[..1 << 19]);
            }
            host.set_len(SIZE).unwrap();
            host.write_all_at(&bytes, 0).unwrap();
            let mut found = vec![0; 8 << 20];
            file.read_exact_at(&mut found, 0).unwrap();
            assert!(found == expected);
        });
        image.close();
    }
}

/// Returns the offset of the first page of a file in an image.
fn find(bytes: &[u8], page: &[u8]) -> u64 {
    let is_it = |at: &usize| bytes[*at..].starts_with(page);
    (0..bytes.len()).step_by(1024).find(is_it).expect("the file is in one piece") as u64
}

/// Returns pages that contain the number of their file, and their index.
fn stamped(number: u64, offset: u64, len: usize) -> Vec<u8> {
    let words = (offset / 8..(offset + len as u64) / 8).map(|word| number << 32 | word);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Returns whether all pages belong to the file or are zeros.
fn is_own(number: u64, offset: u64, bytes: &[u8]) -> bool {
    let own = stamped(number, offset, bytes.len());
    bytes.chunks(8).zip(own.chunks(8)).all(|(found, own)| found == own || found == [0; 8])
}

/// One file is read while it is written, truncated and punched, and its freed blocks are reused by others.
#[test]
fn readers_beside_writers_never_see_what_is_another_files() {
    require!(Root, Fuse, Tool("e2fsck"), Tool("xfs_repair"));
    const LEN: u64 = 4 << 20;
    let rounds = testkit::effort(15, 75, 3000);
    for image in InFile::all() {
        mounted_fs(image.fs(), Options::default(), |root| {
            let (path, is_over) = (root.join("file"), AtomicBool::new(false));
            direct(&path).write_all_at(&stamped(1, 0, LEN as usize), 0).unwrap();
            thread::scope(|scope| {
                for seed in 0..2 {
                    let (path, is_over) = (&path, &is_over);
                    scope.spawn(move || read_until(path, is_over, seed, LEN));
                }
                let others = scope.spawn(|| others_until(root, &is_over));
                change(&path, rounds, LEN);
                is_over.store(true, Ordering::Relaxed);
                others.join().unwrap();
            });
        });
        image.close();
    }
}

fn read_until(path: &Path, is_over: &AtomicBool, seed: u64, len: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (file, mut bytes) = (direct(path), vec![0; 1 << 20]);
    while !is_over.load(Ordering::Relaxed) {
        let offset = random.u64(..len / 512) * 512;
        let there = file.read_at(&mut bytes, offset).unwrap() / 8 * 8;
        assert!(is_own(1, offset, &bytes[..there]), "from {offset}");
    }
}

/// Creates and removes files that reuse freed blocks.
fn others_until(root: &Path, is_over: &AtomicBool) {
    let mut number = 2;
    while !is_over.load(Ordering::Relaxed) {
        let path = root.join(format!("other-{number}"));
        let file = direct(&path);
        file.write_all_at(&stamped(number, 0, 8 << 20), 0).unwrap();
        // Freed blocks can be reused.
        file.sync_all().unwrap();
        fs::remove_file(path).unwrap();
        number += 1;
    }
}

fn change(path: &Path, rounds: u64, len: u64) {
    let mut random = fastrand::Rng::with_seed(7);
    let file = direct(path);
    for _ in 0..rounds {
        let (offset, part) = (random.u64(..len / 4096) * 4096, 1 << 19);
        match random.u8(..4) {
            0 => file.set_len(offset).unwrap(),
            1 => {
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, punch, offset, part).unwrap();
            }
            2 => file.sync_all().unwrap(),
            _ => {}
        }
        file.write_all_at(&stamped(1, offset, part as usize), offset).unwrap();
    }
}

#[test]
fn a_datasync_after_bytes_and_times_changed_is_one_flush() {
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    for image in InFile::all() {
        let (fs, device) = (image.fs(), &image.device);
        let new = NewInode { permissions: 0o644, ..NewInode::default() };
        let ino = fs.create(fs.root(), b"file", &new).unwrap();
        let now = |sec| Some(Timestamp { sec, nsec: 7 });
        let counts =
            || (device.flushes.load(Ordering::Relaxed), device.writes.load(Ordering::Relaxed));
        fs.write(ino, 0, &pattern(1, 64 << 10), now(1)).unwrap();
        let before = counts();
        fs.fdatasync(ino).unwrap();
        assert!(counts().1 > before.1, "size and map of the file have changed");
        let mut expected = pattern(1, 64 << 10);
        assert!(image.after_a_crash(b"file") == expected);
        for sec in 2..5 {
            // The kernel sends this request first, with times only.
            let times = SetAttributes { mtime: now(sec), ctime: now(sec), ..Default::default() };
            fs.set_attributes(ino, &times).unwrap();
            fs.write(ino, 4096, &pattern(2, 8192), now(sec)).unwrap();
            let (flushes, writes) = counts();
            fs.fdatasync(ino).unwrap();
            assert_eq!(counts(), (flushes + 1, writes));
        }
        expected[4096..][..8192].copy_from_slice(&pattern(2, 8192));
        fs.write(ino, 64 << 10, &pattern(3, 100_000), now(6)).unwrap();
        expected.extend(pattern(3, 100_000));
        fs.fdatasync(ino).unwrap();
        assert!(image.after_a_crash(b"file") == expected);
        let times = SetAttributes { mtime: now(7), ..Default::default() };
        fs.set_attributes(ino, &times).unwrap();
        let writes = counts().1;
        fs.fsync(ino).unwrap();
        assert!(counts().1 > writes, "the times were still to be stored");
        for (what, change) in [
            ("mode", SetAttributes { permissions: Some(0o600), ..Default::default() }),
            ("owner", SetAttributes { uid: Some(5), mtime: now(9), ..Default::default() }),
        ] {
            fs.set_attributes(ino, &change).unwrap();
            let writes = counts().1;
            fs.fdatasync(ino).unwrap();
            assert!(counts().1 > writes, "{what}");
        }
        fs.unlink(fs.root(), b"file", now(9)).unwrap();
        let writes = counts().1;
        fs.fdatasync(fs.root()).unwrap();
        assert!(counts().1 > writes, "a name");
        image.close();
    }
}
