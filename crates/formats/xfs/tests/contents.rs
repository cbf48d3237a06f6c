//! Reads contents and locations of files and links made by the kernel.

use crate::support;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate, ioctl_ficlone};
use support::files::{Expected, assert_contents, note_tree};
use support::image::{kernel_image, open};
use testkit::{MkfsXfs, xfs_db};
use vfs::{FileSystem, Ino};
use xfs::Xfs;

/// Returns bytes that identify a file and the position in it.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| rng.u8(1..)).collect()
}

fn fill_plain(root: &Path, block: u64) {
    fill_small(root);
    let sparse = File::create(root.join("sparse")).unwrap();
    for (at, len) in [(10, 20), (block * 5 + 7, 3), (block * 1000, 5000), (1 << 40, 100)] {
        sparse.write_all_at(&pattern(at, len), at).unwrap();
    }
    sparse.set_len((1 << 40) + (1 << 30)).unwrap();
}

fn fill_unwritten(root: &Path, block: u64) {
    let file = File::create(root.join("unwritten")).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, block * 64).unwrap();
    file.write_all_at(&pattern(1, block as usize), block * 3).unwrap();
    file.write_all_at(&pattern(2, block as usize * 2), block * 20).unwrap();
    let file = File::create(root.join("beyond")).unwrap();
    file.write_all_at(&pattern(3, 100), 0).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, block * 64).unwrap();
    let shared = File::create(root.join("shared")).unwrap();
    let source = File::open(root.join("plain-3000000")).unwrap();
    // Without shared blocks in the image this fails.
    let _ = ioctl_ficlone(&shared, &source);
    shared.write_all_at(&pattern(4, 10), block * 7).unwrap();
}

/// Makes files whose every second block is a hole.
fn fill_fragmented(root: &Path, block: u64, counts: &[u64]) {
    for &count in counts {
        let mut file = File::create(root.join(format!("fragments-{count}"))).unwrap();
        file.write_all(&pattern(count, (2 * count * block) as usize)).unwrap();
        file.sync_all().unwrap();
        for hole in 0..count {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, hole * 2 * block, block).unwrap();
        }
    }
}

fn fill_links(root: &Path) {
    for len in [1, 50, 156, 157, 191, 192, 193, 300, 335, 336, 337, 900, 968, 969, 1000, 1023] {
        let target: String = (0..len).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
        symlink(target, root.join(format!("link-{len}"))).unwrap();
    }
}

fn check(options: &str, counts: &[u64]) {
    let fill = |root: &Path, block| {
        fill_plain(root, block);
        fill_unwritten(root, block);
        fill_fragmented(root, block, counts);
        fill_links(root);
    };
    let (image, expected): (_, Vec<Expected>) = kernel_image(options, fill, note_tree);
    let fs = open(image.path());
    assert!(expected.len() > 20);
    for one in &expected {
        assert_contents(&fs, one);
    }
}

#[test]
fn files_of_the_kernel_in_small_blocks() {
    testkit::require!(Tool("mkfs.xfs"), Tool("filefrag"), Mount("xfs"));
    check("-b size=1024", &[10, 30, 5000]);
}

#[test]
fn files_of_the_kernel_in_usual_blocks() {
    testkit::require!(Tool("mkfs.xfs"), Tool("filefrag"), Mount("xfs"));
    check("", &[10, 25, 3000]);
}

#[test]
fn files_of_the_kernel_in_large_blocks() {
    testkit::require!(Tool("mkfs.xfs"), Tool("filefrag"), Mount("xfs"));
    check("-b size=65536", &[10, 30]);
}

#[test]
fn files_of_the_kernel_without_recent_features() {
    testkit::require!(Tool("mkfs.xfs"), Tool("filefrag"), Mount("xfs"));
    check("-m rmapbt=0,reflink=0 -i nrext64=0 -n parent=0 -b size=2048", &[30, 2000]);
}

/// Current kernels may not mount version 4, but mkfs.xfs can fill such images.
#[test]
fn files_of_mkfs_in_version_4() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_db"));
    for options in ["-m crc=0", "-m crc=0 -b size=512"] {
        let (home, source) = (testkit::scratch(), testkit::scratch());
        fill_small(source.path());
        fill_links(source.path());
        let image = home.path().join("image");
        let mkfs = MkfsXfs::default().options(options).prototype(source.path());
        mkfs.create(&image, 400 << 20);
        let fs = open(&image);
        let listing = xfs_db(&image, &["ls /"]);
        let mut count = 0;
        for line in listing.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if let [_, ino, "regular" | "symlink", _, _, name, ..] = fields[..] {
                assert_same_as_source(&fs, Ino(ino.parse().unwrap()), &source.path().join(name));
                count += 1;
            }
        }
        assert_eq!(count, fs::read_dir(source.path()).unwrap().count());
    }
}

fn fill_small(root: &Path) {
    for (index, len) in [0, 1, 100, 4096, 5000, 70_000, 3_000_000].into_iter().enumerate() {
        fs::write(root.join(format!("plain-{len}")), pattern(index as u64, len)).unwrap();
    }
}

fn assert_same_as_source(fs: &Xfs, ino: Ino, source: &Path) {
    if source.is_symlink() {
        let target = source.read_link().unwrap();
        assert_eq!(fs.readlink(ino).unwrap(), target.as_os_str().as_bytes());
        return;
    }
    let expected = fs::read(source).unwrap();
    let mut found = vec![0; expected.len() + 1];
    assert_eq!(fs.read(ino, 0, &mut found).unwrap(), expected.len());
    assert!(found[..expected.len()] == expected, "{}", source.display());
}
