//! Flags and hints that new files inherit from their directory, in an image made by the kernel and changed in place.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use testkit::{KernelMount, MkfsXfs, MountOptions, require};
use vfs::{FileSystem, NewInode};
use xfs::{OpenOptions, Xfs};

fn open(path: &Path) -> Xfs {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let device = Arc::new(FileDevice::new(file).unwrap());
    Xfs::open_writable(device, &OpenOptions::default()).unwrap()
}

fn xfs_io(commands: &[&str], path: &Path) -> String {
    let mut xfs_io = testkit::command("xfs_io");
    let options = commands.iter().flat_map(|command| ["-c", command]);
    let output = xfs_io.args(options).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn new_files_get_what_their_directory_has_for_them() {
    require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Tool("xfs_io"), Mount("xfs"));
    let folder = testkit::scratch();
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
    fs.write(file, 0, b"some", None).unwrap();
    fs.close().unwrap();
    testkit::xfs_repair(&path);
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
    testkit::xfs_repair(&path);
}
