//! Targets of links that are written here and read by the kernel.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use blockdev::FileDevice;
use oracle::{KernelMount, MountOptions};
use vfs::{FileSystem, Ino};

use super::symlink::DATA_FORK_DEFAULT;
use crate::Xfs;
use crate::format::inode::{Fork, Format};

/// Lengths around all that decides where a target goes.
const LENS: [usize; 14] = [1, 50, 191, 192, 193, 335, 336, 337, 900, 967, 968, 969, 1000, 1023];

fn target(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at * 7 % 26) as u8).collect()
}

/// An image by mkfs.xfs, in which the kernel makes a link per length, and their numbers.
fn image_of_links(path: &Path, options: &str) -> Option<Vec<Ino>> {
    let mkfs = std::env::var_os("DISKWRIGHT_MKFS_XFS")?;
    File::create(path).and_then(|file| file.set_len(400 << 20)).unwrap();
    let output = Command::new(mkfs)
        .args(["-q", "-f"])
        .args(options.split_whitespace())
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mount = KernelMount::new(path, &MountOptions::read_write("xfs"));
    let make = |len: &usize| {
        let link = mount.path().join(len.to_string());
        symlink("x", &link).unwrap();
        Ino(link.symlink_metadata().unwrap().ino())
    };
    let links = LENS.iter().map(make).collect();
    mount.unmount();
    Some(links)
}

fn retarget(options: &str, is_moved: bool) {
    let home = oracle::scratch();
    let path = home.path().join("image");
    let Some(links) = image_of_links(&path, options) else { return };
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let fs = Xfs::open_fresh(Arc::new(FileDevice::new(file).unwrap()), 16 << 20).unwrap();
    for (&len, &ino) in LENS.iter().zip(&links) {
        fs.atomically(|op| {
            let mut link = fs.load(ino)?;
            op.init_symlink(&mut link, &target(len))?;
            if is_moved && link.inode.format() == Format::Local {
                op.move_target_out(&mut link)?;
            }
            op.stage(link);
            Ok(())
        })
        .unwrap();
        let link = fs.load(ino).unwrap();
        let room = link.inode.fork(Fork::Data).len();
        assert!(link.inode.has_attr_fork() != options.contains("parent=0"));
        assert!(room == DATA_FORK_DEFAULT || !link.inode.has_attr_fork());
        let is_local = link.inode.format() == Format::Local;
        assert_eq!(is_local, len <= room && !is_moved, "{len} bytes");
    }
    let is_written = |fs: &Xfs| {
        for (&len, &ino) in LENS.iter().zip(&links) {
            assert_eq!(fs.readlink(ino).unwrap(), target(len));
        }
    };
    is_written(&fs);
    fs.finish().unwrap();
    drop(fs);
    let device = Arc::new(FileDevice::new(File::open(&path).unwrap()).unwrap());
    is_written(&Xfs::open(device, &crate::OpenOptions::default()).unwrap());
    let mount = KernelMount::new(&path, &MountOptions::read_only("xfs"));
    for &len in &LENS {
        let found = mount.path().join(len.to_string()).read_link().unwrap();
        assert_eq!(found.as_os_str().as_bytes(), target(len));
    }
    mount.unmount();
    drop_all(&path, &links);
}

/// Links without contents are damage, so this is the end of the image.
fn drop_all(path: &Path, links: &[Ino]) {
    let repair =
        Path::new(&std::env::var_os("DISKWRIGHT_MKFS_XFS").unwrap()).with_file_name("xfs_repair");
    let output = Command::new(repair).args(["-n", "-f"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = File::options().read(true).write(true).open(path).unwrap();
    let fs = Xfs::open_fresh(Arc::new(FileDevice::new(file).unwrap()), 16 << 20).unwrap();
    for &ino in links {
        fs.atomically(|op| {
            let mut link = fs.load(ino)?;
            op.drop_data(&mut link)?;
            assert_eq!(link.inode.nblocks(), 0);
            op.stage(link);
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn targets_go_where_the_kernel_puts_them() {
    for options in ["-m rmapbt=0", "-m rmapbt=0 -b size=1024", "-m rmapbt=0 -n parent=0"] {
        retarget(options, false);
    }
}

#[test]
fn targets_can_leave_the_inode() {
    for options in ["-m rmapbt=0 -n parent=0", "-m rmapbt=0 -b size=1024 -n parent=0"] {
        retarget(options, true);
    }
}
