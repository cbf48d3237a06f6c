//! Images with structures that the golden ones lack: stripes, case-insensitive names, inodes open at a crash.

use std::sync::Arc;

use disk::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, Ino, NewInode};
use xfs::{OpenOptions, Xfs};

use crate::changing::{MIB, TargetLayout};

const SIZE: u64 = 96 * MIB;

/// Returns the name and the bytes of each.
pub(super) fn all() -> Vec<(&'static str, Vec<u8>)> {
    let kinds = [
        ("stripes", "-d su=64k,sw=4 -l su=64k", 4096, false),
        ("orphans", "-b size=1024", 1024, true),
        ("ascii-ci", "-n version=ci", 4096, false),
        ("many-groups", "-d agcount=5 -i size=1024", 4096, false),
    ];
    let bytes = |(name, mkfs, block_size, is_crashed)| {
        let layout =
            TargetLayout { mkfs: Some(mkfs), size: SIZE, block_size, ..TargetLayout::DEFAULT };
        (name, bytes(&made(&layout, is_crashed)))
    };
    kinds.into_iter().map(bytes).collect()
}

fn bytes(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn made(layout: &TargetLayout, is_crashed: bool) -> MemoryDevice {
    let device = Arc::new(layout.make());
    let fs = Xfs::open_writable(device.clone(), &OpenOptions::default()).unwrap();
    fill(&fs, layout.block_size.into());
    if !is_crashed {
        fs.close().unwrap();
        return device.fork();
    }
    for nth in 0..40 {
        let ino = file(&fs, fs.root(), &format!("open {nth}"), &[1; 3000]);
        fs.open(ino).unwrap();
        fs.unlink(fs.root(), format!("open {nth}").as_bytes(), None).unwrap();
    }
    fs.sync().unwrap();
    device.fork()
}

fn file(fs: &Xfs, dir: Ino, name: &str, contents: &[u8]) -> Ino {
    let new = NewInode { permissions: 0o644, ..NewInode::default() };
    let ino = fs.create(dir, name.as_bytes(), &new).unwrap();
    fs.write(ino, 0, contents, None).unwrap();
    ino
}

fn fill(fs: &Xfs, block: u64) {
    let new = NewInode { permissions: 0o755, ..NewInode::default() };
    for dir in 0..8 {
        let dir = fs.mkdir(fs.root(), format!("dir{dir}").as_bytes(), &new).unwrap();
        for nth in 0..25_u8 {
            let ino = file(fs, dir, &format!("file {nth}"), &vec![nth; 700 * usize::from(nth)]);
            fs.set_xattr(ino, b"user.small", &[nth; 20]).unwrap();
        }
    }
    // A directory with an index of several blocks.
    let large = fs.mkdir(fs.root(), b"large", &new).unwrap();
    for nth in 0..900 {
        let name = format!("a rather long name of an entry, number {nth}");
        fs.create(large, name.as_bytes(), &new).unwrap();
    }
    // Extent maps that are trees.
    for name in ["scattered", "scattered too"] {
        let ino = file(fs, fs.root(), name, b"start");
        for nth in 0..300 {
            fs.write(ino, nth * 2 * block, &[nth as u8; 100], None).unwrap();
        }
        fs.set_xattr(ino, b"user.remote", &[7; 5000]).unwrap();
        for nth in 0..60 {
            fs.set_xattr(ino, format!("user.attribute {nth}").as_bytes(), &[nth; 60]).unwrap();
        }
    }
    let target: Vec<u8> = (0..900).map(|nth| b'a' + (nth % 26) as u8).collect();
    fs.symlink(fs.root(), b"remote link", &target, &new).unwrap();
    fs.symlink(fs.root(), b"link", b"dir0/file 3", &new).unwrap();
    let linked = file(fs, large, "with names", &[5; 10_000]);
    for nth in 0..20 {
        fs.link(linked, fs.root(), format!("name {nth}").as_bytes(), None).unwrap();
    }
}
