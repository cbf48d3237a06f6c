//! Targets of links, written here and read by the kernel.

use operations::RunOperations;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::sync::Arc;

use disk::FileDevice;
use testkit::{KernelMount, MkfsXfs, MountOptions, xfs_repair};
use vfs::{FileSystem, Ino};

use crate::Xfs;
use crate::format::inode::{Fork, ForkFormat};

/// Lengths around all the limits that decide where a target is stored.
const LENS: [usize; 14] = [1, 50, 191, 192, 193, 335, 336, 337, 900, 967, 968, 969, 1000, 1023];

fn target(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at * 7 % 26) as u8).collect()
}

/// Makes an image with mkfs.xfs, in which the kernel makes one link per length. Returns their numbers.
fn image_of_links(path: &Path, options: &str) -> Vec<Ino> {
    MkfsXfs::default().options(options).create(path, 400 << 20);
    let mount = KernelMount::new(path, &MountOptions::read_write("xfs"));
    let make = |len: &usize| {
        let link = mount.path().join(len.to_string());
        symlink("x", &link).unwrap();
        Ino(link.symlink_metadata().unwrap().ino())
    };
    let links = LENS.iter().map(make).collect();
    mount.unmount();
    links
}

fn open_in_progress(path: &Path) -> Xfs {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Xfs::open_in_progress(Arc::new(FileDevice::new(file).unwrap()), 16 << 20).unwrap()
}

fn retarget(options: &str, is_moved: bool) {
    let home = testkit::scratch();
    let path = home.path().join("image");
    let links = image_of_links(&path, options);
    let fs = open_in_progress(&path);
    for (&len, &ino) in LENS.iter().zip(&links) {
        fs.atomically(|op| {
            let mut link = fs.load(ino)?;
            op.init_symlink(&mut link, &target(len))?;
            if is_moved && link.inode.format() == ForkFormat::Local {
                op.move_target_out(&mut link)?;
            }
            op.stage(link);
            Ok(())
        })
        .unwrap();
        let link = fs.load(ino).unwrap();
        let room = link.inode.fork(Fork::Data).len();
        assert!(link.inode.has_attr_fork() != options.contains("parent=0"));
        assert!(room == 192 || !link.inode.has_attr_fork());
        let is_local = link.inode.format() == ForkFormat::Local;
        assert_eq!(is_local, len <= room && !is_moved, "{len} bytes");
    }
    let is_written = |fs: &Xfs| {
        for (&len, &ino) in LENS.iter().zip(&links) {
            assert_eq!(fs.readlink(ino).unwrap(), target(len));
        }
    };
    is_written(&fs);
    fs.finish(None).unwrap();
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

/// Drops all targets. Links without contents are damage, so the image is unusable afterwards.
fn drop_all(path: &Path, links: &[Ino]) {
    xfs_repair(path);
    let fs = open_in_progress(path);
    for &ino in links {
        fs.atomically(|op| {
            let mut link = fs.load(ino)?;
            assert!(op.drop_data(&mut link, &mut 100)?);
            assert_eq!(link.inode.nblocks(), 0);
            op.stage(link);
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn targets_go_where_the_kernel_puts_them() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for options in ["", "-m rmapbt=0 -b size=1024", "-n parent=0"] {
        retarget(options, false);
    }
}

#[test]
fn targets_can_leave_the_inode() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"), Mount("xfs"));
    for options in ["-n parent=0", "-b size=1024 -n parent=0"] {
        retarget(options, true);
    }
}
