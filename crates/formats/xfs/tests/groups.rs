//! Space and inodes of allocation groups as files are created and removed, in images made by mkfs.xfs. Checked by
//! `xfs_repair` and by the kernel, which must see the same usage and continue from there.

use std::collections::HashSet;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::FileDevice;
use testkit::{KernelMount, MkfsXfs, MountOptions, xfs_repair};
use vfs::{Error, FileSystem, Ino, NewInode, Timestamp};
use xfs::Xfs;

const CACHE_BYTES: usize = 32 << 20;

struct GroupImage {
    fs: Xfs,
    path: PathBuf,
    _home: tempfile::TempDir,
}

impl GroupImage {
    fn new(options: &str, size: u64) -> Self {
        let home = testkit::scratch();
        let path = home.path().join("image");
        MkfsXfs::default().options(options).create(&path, size);
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let device = Arc::new(FileDevice::new(file).unwrap());
        let fs = Xfs::open_in_progress(device, CACHE_BYTES).unwrap();
        Self { fs, path, _home: home }
    }

    /// Finishes the image and checks it, and makes and removes some files with the kernel.
    fn judge(&self) {
        self.fs.finish(None).unwrap();
        xfs_repair(&self.path);
        let mount = KernelMount::new(&self.path, &MountOptions::read_write("xfs"));
        let work = mount.path().join("by the kernel");
        // A full image may have no room for that.
        if std::fs::create_dir(&work).is_ok() {
            for at in 0..200 {
                let _ = std::fs::write(work.join(format!("{at}")), vec![1; at * 50]);
            }
            std::fs::remove_dir_all(&work).unwrap();
        }
        mount.unmount();
        xfs_repair(&self.path);
    }
}

fn new() -> NewInode {
    NewInode {
        permissions: 0o755,
        uid: 0,
        gid: 0,
        time: Timestamp { sec: 1_700_000_000, nsec: 0 },
        parent_time: None,
    }
}

fn entries(path: &Path) -> usize {
    let children = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    children
        .map(
            |entry| {
                if entry.file_type().unwrap().is_dir() { 1 + entries(&entry.path()) } else { 1 }
            },
        )
        .sum()
}

const KINDS: [&str; 7] = [
    "",
    "-b size=1024",
    "-m rmapbt=0,reflink=0 -n parent=0",
    "-m finobt=0,inobtcount=0",
    "-i sparse=0",
    "-s size=4096 -i size=1024",
    "-d agcount=21",
];

#[test]
fn ten_thousand_files_in_a_few_directories() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for kind in KINDS.into_iter().step_by(testkit::effort(3, 1, 1)) {
        let image = GroupImage::new(kind, 640 << 20);
        let fs = &image.fs;
        let dirs: Vec<Ino> = (0..10)
            .map(|at| fs.mkdir(fs.root(), format!("dir {at}").as_bytes(), &new()).unwrap())
            .collect();
        for at in 0..10_000 {
            let name = format!("a file with a longer name {at}");
            let file = fs.create(dirs[at % dirs.len()], name.as_bytes(), &new()).unwrap();
            if at % 3 == 0 {
                fs.write(file, 0, &vec![3; at % 20_000], None).unwrap();
            }
        }
        for at in (0..10_000).filter(|at| at % 5 != 0) {
            let name = format!("a file with a longer name {at}");
            fs.unlink(dirs[at % dirs.len()], name.as_bytes(), None).unwrap();
        }
        image.judge();
        let mount = KernelMount::new(&image.path, &MountOptions::read_only("xfs"));
        assert_eq!(entries(mount.path()), 2010);
        mount.unmount();
    }
}

#[test]
fn a_full_image_is_valid_and_can_be_emptied() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let kinds = ["-b size=1024", "-m rmapbt=0", "-m finobt=0", ""];
    for kind in kinds.into_iter().take(testkit::effort(2, 4, 4)) {
        let image = GroupImage::new(kind, 96 << 20);
        let fs = &image.fs;
        let root = fs.root();
        let mut files = Vec::new();
        let full = loop {
            let name = format!("{}", files.len()).into_bytes();
            let size = if files.len() % 100 == 99 { 1 << 20 } else { 6000 };
            let file = match fs.create(root, &name, &new()) {
                Ok(file) => file,
                Err(error) => break error,
            };
            files.push(name);
            if let Err(error) = fs.write(file, 0, &vec![5; size], None) {
                break error;
            }
        };
        assert!(matches!(full, Error::NoSpace | Error::NoInodes), "{full}");
        image.judge();
        // The kernel's changes invalidate this file system, so it is opened again.
        let GroupImage { path, _home: home, .. } = image;
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let fs =
            Xfs::open_in_progress(Arc::new(FileDevice::new(file).unwrap()), CACHE_BYTES).unwrap();
        let order = (0..2).flat_map(|odd| files.iter().skip(odd).step_by(2));
        order.for_each(|name| fs.unlink(root, name, None).unwrap());
        GroupImage { fs, path, _home: home }.judge();
    }
}

#[test]
fn threads_with_directories_of_their_own() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let image = GroupImage::new("-d agcount=6", 640 << 20);
    let fs = &image.fs;
    let work = |seed: u64| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let dir = fs.mkdir(fs.root(), format!("{seed}").as_bytes(), &new()).unwrap();
        let mut inos = Vec::new();
        for at in 0..1500 {
            let name = format!("{at}").into_bytes();
            let ino = match rng.u32(..4) {
                0 => fs.mkdir(dir, &name, &new()).unwrap(),
                _ => fs.create(dir, &name, &new()).unwrap(),
            };
            inos.push(ino);
            if at > 10 && rng.bool() {
                // One of the two removes it, whatever its type, unless it is gone.
                let name = format!("{}", rng.u32(..at)).into_bytes();
                let gone = fs.rmdir(dir, &name, None).or_else(|_| fs.unlink(dir, &name, None));
                assert!(matches!(gone, Ok(()) | Err(Error::NotFound)));
            } else if fs.attributes(ino).is_ok_and(|a| a.file_type == vfs::FileType::Regular) {
                fs.write(ino, rng.u64(..100_000), &vec![9; rng.usize(..30_000)], None).unwrap();
            }
        }
        inos.len()
    };
    let made: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(made, 6000);
    image.judge();
}

#[test]
fn the_same_work_gives_the_same_inodes() {
    testkit::require!(Tool("mkfs.xfs"));
    let numbers = || {
        let image = GroupImage::new("-m uuid=11111111-2222-3333-4444-555555555555", 320 << 20);
        let fs = &image.fs;
        let dirs = (0..9).map(|at| fs.mkdir(fs.root(), &[b'a' + at], &new()).unwrap());
        let dirs: Vec<Ino> = dirs.collect();
        let files = dirs.iter().flat_map(|&dir| {
            (0..70).map(move |at| fs.create(dir, format!("{at}").as_bytes(), &new()).unwrap())
        });
        let all: Vec<Ino> = files.collect();
        (dirs, all)
    };
    let first = numbers();
    assert_eq!(first, numbers());
    assert_eq!(first.1.iter().collect::<HashSet<_>>().len(), 9 * 70);
}
