//! What an image made by the kernel has beside files, and what becomes of it when the image is changed in
//! place: quotas, and flags and hints that new files get from their directory.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use blockdev::FileDevice;
use oracle::{KernelMount, MkfsXfs, MountOptions, require};
use vfs::{FileSystem, NewInode};
use xfs::{OpenOptions, Xfs};

fn open(path: &Path) -> Xfs {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    Xfs::open_writable(device, &OpenOptions::default()).unwrap()
}

fn xfs_io(commands: &[&str], path: &Path) -> String {
    let mut xfs_io = Command::new(oracle::program("xfs_io").unwrap());
    let options = commands.iter().flat_map(|command| ["-c", command]);
    let output = xfs_io.args(options).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn quotas_are_counted_anew_by_the_next_kernel_that_wants_them() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    let folder = oracle::scratch();
    let path = folder.path().join("image");
    MkfsXfs::default().create(&path, 320 << 20);
    let with_quotas = MountOptions { extra: "uquota,gquota", ..MountOptions::read_write("xfs") };
    let mount = KernelMount::new(&path, &with_quotas);
    std::fs::write(mount.path().join("old"), vec![1; 1 << 20]).unwrap();
    mount.unmount();
    let fs = open(&path);
    assert_eq!(fs.superblock().raw.qflags.get() & 0x41, 0x41, "both are counted");
    let new = NewInode { uid: 1234, ..NewInode::default() };
    let ino = fs.create(fs.root(), b"new", &new).unwrap();
    fs.write(ino, 0, &vec![2; 1 << 20]).unwrap();
    fs.unlink(fs.root(), b"old", None).unwrap();
    fs.close().unwrap();
    oracle::xfs_repair(&path);
    assert_eq!(open(&path).superblock().raw.qflags.get(), 0);
    let mount = KernelMount::new(&path, &with_quotas);
    assert_eq!(std::fs::read(mount.path().join("new")).unwrap(), vec![2; 1 << 20]);
    mount.unmount();
    oracle::xfs_repair(&path);
    assert_eq!(open(&path).superblock().raw.qflags.get() & 0x41, 0x41, "they were counted");
}

#[test]
fn new_files_get_what_their_directory_has_for_them() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("xfs_io"), Mount("xfs"));
    let folder = oracle::scratch();
    let path = folder.path().join("image");
    MkfsXfs::default().create(&path, 320 << 20);
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    let dir = mount.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    xfs_io(&["extsize 64k", "cowextsize 128k", "chattr +Ad"], &dir);
    File::create(dir.join("theirs")).unwrap();
    std::fs::create_dir(dir.join("their-dir")).unwrap();
    mount.unmount();
    let fs = open(&path);
    let ino = fs.lookup(fs.root(), b"dir").unwrap();
    let file = fs.create(ino, b"ours", &NewInode::default()).unwrap();
    fs.mkdir(ino, b"our-dir", &NewInode::default()).unwrap();
    fs.symlink(ino, b"our-link", b"ours", &NewInode::default()).unwrap();
    fs.write(file, 0, b"some").unwrap();
    fs.close().unwrap();
    oracle::xfs_repair(&path);
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    let dir = mount.path().join("dir");
    let hints = |name: &str| {
        let all = xfs_io(&["extsize", "cowextsize", "lsattr"], &dir.join(name));
        all.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let (theirs, ours): (Vec<String>, Vec<String>) = (hints("theirs"), hints("ours"));
    assert_eq!(theirs, ours);
    assert_eq!(ours[..2], ["[65536]", "[131072]"]);
    let (theirs, ours): (Vec<String>, Vec<String>) = (hints("their-dir"), hints("our-dir"));
    assert_eq!(theirs, ours);
    mount.unmount();
    oracle::xfs_repair(&path);
}
