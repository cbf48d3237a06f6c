//! Files without names. Open ones are usable and closed ones are freed. Orphans left by a crash are processed by the
//! kernel, by e2fsck and by this crate, each after the others.

use crate::common;

mod damage;
mod data;
mod kernel;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::FileDevice;
use ext4::{Ext4, OpenOptions, OrphanPolicy, OrphanReport};
use tempfile::TempDir;
use testkit::{Mke2fs, require, scratch};
use vfs::{Error, FileSystem, Ino, NewInode, Timestamp};

const MIB: u64 = 1 << 20;

/// Number of slots in an orphan block of 1 KiB.
const SLOTS_1K: usize = 254;

/// The ways in which the images of these tests store orphans.
const KINDS: [(&str, &[&str]); 3] = [
    ("file", &["-O", "orphan_file"]),
    ("list", &["-O", "^orphan_file"]),
    // Small enough that orphans overflow into the list.
    ("tiny file", &["-O", "orphan_file", "-E", "orphan_file_size=2", "-b", "1024"]),
];

/// An image in a temporary directory.
struct OrphanImage {
    _folder: TempDir,
    path: PathBuf,
}

impl OrphanImage {
    fn new(arguments: &[&str]) -> Self {
        let folder = scratch();
        let path = folder.path().join("image");
        Mke2fs::new("ext4").arguments(["-N", "4096"]).arguments(arguments).create(&path, 32 * MIB);
        Self { _folder: folder, path }
    }

    fn copy(&self) -> Self {
        let folder = scratch();
        let path = folder.path().join("image");
        testkit::copy_image(&self.path, &path);
        Self { _folder: folder, path }
    }

    fn open(&self) -> Ext4 {
        self.try_open(OrphanPolicy::WhenNeeded).unwrap()
    }

    fn try_open(&self, orphans: OrphanPolicy) -> Result<Ext4, Error> {
        let file = File::options().read(true).write(true).open(&self.path).unwrap();
        let device = Arc::new(FileDevice::new(file).unwrap());
        let options = OpenOptions { cache_bytes: 8 << 20, orphans, ..OpenOptions::default() };
        Ext4::open_writable(device, &options)
    }

    /// Replays the journal without processing orphans.
    fn replay(&self) {
        testkit::debugfs_write(&self.path, "journal_run");
    }

    fn free_inodes(&self) -> u64 {
        self.open_read_only().statfs().unwrap().inodes_free
    }

    fn free_blocks(&self) -> u64 {
        self.open_read_only().statfs().unwrap().blocks_free
    }

    fn open_read_only(&self) -> Ext4 {
        let device = Arc::new(FileDevice::new(File::open(&self.path).unwrap()).unwrap());
        Ext4::open(device, &OpenOptions { norecovery: true, ..OpenOptions::default() }).unwrap()
    }
}

fn new_file() -> NewInode {
    NewInode {
        permissions: 0o600,
        uid: 0,
        gid: 0,
        time: Timestamp { sec: 1_700_000_000, nsec: 0 },
        parent_time: None,
    }
}

fn orphan(fs: &Ext4) -> Ino {
    fs.create_unlinked(fs.root(), &new_file()).unwrap()
}

/// Closes one inode. `Ext4::close` would close the file system.
fn close(fs: &Ext4, ino: Ino) -> Result<(), Error> {
    FileSystem::close(fs, ino)
}

/// Runs `e2fsck -p`, as at boot. Returns its output.
fn preen(path: &Path) -> String {
    let output = testkit::command("e2fsck").args(["-fp"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code().is_some_and(|code| code <= 1), "{text}");
    assert_sound(path);
    text
}

/// Asserts that e2fsck finds no damage. It may report an extent tree that could be shorter; truncation by e2fsck and by
/// the kernel leaves such trees.
fn assert_sound(path: &Path) {
    let output = testkit::command("e2fsck").args(["-fn"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (_, arguments) in KINDS {
        let image = OrphanImage::new(arguments);
        let free = image.free_inodes();
        let fs = image.open();
        let inos: Vec<_> = (0..3 * SLOTS_1K).map(|_| orphan(&fs)).collect();
        assert_eq!(fs.attributes(inos[7]).unwrap().links, 0);
        fs.open(inos[7]).unwrap();
        // From the middle, the start and the end, so that the list is unlinked at all positions.
        for (step, &ino) in
            inos.iter().enumerate().skip(2).step_by(3).chain(inos.iter().enumerate())
        {
            if fs.attributes(ino).is_ok() {
                close(&fs, ino).unwrap();
            }
            assert_eq!(fs.attributes(ino).is_err(), step != 7);
        }
        close(&fs, inos[7]).unwrap();
        assert!(matches!(fs.attributes(inos[7]), Err(Error::NotFound)));
        assert!(matches!(fs.open(inos[7]), Err(Error::NotFound)));
        assert!(matches!(close(&fs, inos[7]), Err(Error::Invalid(_))));
        fs.close().unwrap();
        testkit::e2fsck(&image.path);
        assert_eq!(image.free_inodes(), free);
    }
}

#[test]
fn a_name_ends_the_danger() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (_, arguments) in KINDS {
        let image = OrphanImage::new(arguments);
        let fs = image.open();
        let [before, named, after] = std::array::from_fn(|_| orphan(&fs));
        fs.link(named, fs.root(), b"named", None).unwrap();
        for ino in [before, named, after] {
            close(&fs, ino).unwrap();
        }
        assert_eq!(fs.attributes(named).unwrap().links, 1);
        fs.close().unwrap();
        testkit::e2fsck(&image.path);
        let fs = image.open();
        assert_eq!(fs.lookup(fs.root(), b"named").unwrap(), named);
        assert_eq!(fs.cleaned_orphans(), OrphanReport::default());
        fs.close().unwrap();
    }
}

#[test]
fn a_clean_close_ends_what_is_still_open() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (_, arguments) in KINDS {
        let image = OrphanImage::new(arguments);
        let free = image.free_inodes();
        let fs = image.open();
        for _ in 0..600 {
            orphan(&fs);
        }
        fs.close().unwrap();
        testkit::e2fsck(&image.path);
        assert_eq!(image.free_inodes(), free);
    }
}

/// Creates an image that was not closed, with `count` orphans.
fn crashed(arguments: &[&str], count: usize) -> OrphanImage {
    let image = OrphanImage::new(arguments);
    let fs = image.open();
    let inos: Vec<_> = (0..count + 40).map(|_| orphan(&fs)).collect();
    for ino in inos.iter().step_by(count / 40 + 1).take(40) {
        close(&fs, *ino).unwrap();
    }
    fs.sync().unwrap();
    image
}

#[test]
fn the_next_opening_processes_orphans_of_a_crash() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (kind, arguments) in KINDS {
        let image = crashed(arguments, 600);
        let fs = image.open();
        assert_eq!(fs.cleaned_orphans(), OrphanReport { truncated: 0, freed: 600 }, "{kind}");
        fs.close().unwrap();
        testkit::e2fsck(&image.path);
        let fs = image.open();
        assert_eq!(fs.cleaned_orphans(), OrphanReport::default(), "{kind}");
        fs.close().unwrap();
    }
}

#[test]
fn e2fsck_ends_what_a_crash_leaves() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (kind, arguments) in KINDS {
        let image = crashed(arguments, 600);
        let said = preen(&image.path);
        let cleared = said.matches("Clearing orphaned inode").count();
        assert_eq!(cleared, 600, "{kind}: {said}");
        let fs = image.open();
        assert_eq!(fs.cleaned_orphans(), OrphanReport::default());
        fs.close().unwrap();
    }
}

#[test]
fn policies_for_benchmarks_keep_the_image_right() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for policy in [OrphanPolicy::Always, OrphanPolicy::ListOnly, OrphanPolicy::Off] {
        let image = OrphanImage::new(KINDS[0].1);
        let free = image.free_inodes();
        let fs = image.try_open(policy).unwrap();
        let inos: Vec<_> = (0..50).map(|_| orphan(&fs)).collect();
        fs.sync().unwrap();
        let copy = image.copy();
        copy.replay();
        let listed = testkit::debugfs(&copy.path, "stats").contains("First orphan inode");
        assert_eq!(listed, policy == OrphanPolicy::ListOnly);
        for ino in inos {
            close(&fs, ino).unwrap();
        }
        fs.close().unwrap();
        testkit::e2fsck(&image.path);
        assert_eq!(image.free_inodes(), free);
    }
}

#[test]
fn threads_make_and_end_orphans_side_by_side() {
    require!(Tool("mke2fs"), Tool("e2fsck"));
    for (kind, arguments) in KINDS {
        let image = OrphanImage::new(arguments);
        let free = image.free_inodes();
        let fs = image.open();
        let left: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8_u64)
                .map(|seed| {
                    scope.spawn({
                        let fs = &fs;
                        move || churn(fs, seed)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        fs.sync().unwrap();
        drop(fs);
        let copy = image.copy();
        let said = preen(&copy.path);
        assert_eq!(said.matches("Clearing orphaned inode").count(), left, "{kind}");
        let fs = image.open();
        assert_eq!(fs.cleaned_orphans().freed as usize, left, "{kind}");
        fs.close().unwrap();
        testkit::e2fsck(&image.path);
        assert_eq!(image.free_inodes(), free);
    }
}

/// Creates and closes files without names at random. Returns how many are still open.
fn churn(fs: &Ext4, seed: u64) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut open = Vec::new();
    for _ in 0..1500 {
        if open.len() < 100 && rng.u8(..) < 140 {
            let ino = orphan(fs);
            fs.write(ino, u64::from(rng.u16(..)), &[1; 700], None).unwrap();
            fs.truncate(ino, u64::from(rng.u16(..)), None).unwrap();
            open.push(ino);
        } else if !open.is_empty() {
            close(fs, open.swap_remove(rng.usize(..open.len()))).unwrap();
        }
    }
    open.len()
}
