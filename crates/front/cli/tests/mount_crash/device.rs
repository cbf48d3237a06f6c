//! A block device that fails temporarily.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use tempfile::TempDir;
use testkit::{Mke2fs, MkfsXfs, require};

use crate::mount::Mounting;
use crate::place::{self, Format, run};

const IMAGE_BYTES: u64 = 310 << 20;

/// A loop device on a sparse file in memory. Writes to the device fail while the memory is full.
struct Device {
    memory: TempDir,
    path: PathBuf,
}

impl Device {
    fn new(image: &Path) -> Self {
        let memory = testkit::scratch();
        let mut mount = testkit::command("mount");
        run(mount.args(["-t", "tmpfs", "-o", "size=24M", "none"]).arg(memory.path()));
        let mut device = Self { memory, path: PathBuf::new() };
        testkit::copy_image(image, &device.file());
        let mut losetup = testkit::command("losetup");
        let path = run(losetup.args(["--find", "--show"]).arg(device.file()));
        device.path = path.trim().into();
        device
    }

    fn file(&self) -> PathBuf {
        self.memory.path().join("image")
    }

    fn filler(&self) -> PathBuf {
        self.memory.path().join("filler")
    }

    /// Makes all writes to unallocated parts of the file fail.
    fn fail(&self) {
        let mut filler = File::create(self.filler()).unwrap();
        while filler.write(&[0; 4096]).is_ok() {}
    }

    fn recover(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.path.is_absolute() {
            let _ = testkit::command("losetup").arg("--detach").arg(&self.path).status();
        }
        let _ = testkit::command("umount").arg("--lazy").arg(self.memory.path()).status();
    }
}

/// The kernel reports a write-back error to the first program that syncs afterwards. If the program
/// whose writes failed was killed, that is another program.
#[test]
fn an_image_is_mounted_again_as_soon_as_its_device_works_again() {
    require!(Root, Loop, Fuse, Tool("losetup"), Tool("mount"), Tool("umount"));
    require!(Tool("mke2fs"), Tool("e2fsck"), Tool("mkfs.xfs"), Tool("xfs_repair"));
    for format in [Format::Ext, Format::Xfs] {
        let home = testkit::scratch();
        let image = home.path().join("image");
        match format {
            Format::Ext => Mke2fs::new("ext4").create(&image, IMAGE_BYTES),
            Format::Xfs => MkfsXfs::default().create(&image, IMAGE_BYTES),
        }
        let device = Device::new(&image);
        let mount = Mounting::new(&device.path).options("commit=0").start();
        fs::write(mount.join("kept"), "contents").unwrap();
        File::open(mount.join("kept")).unwrap().sync_all().unwrap();
        device.fail();
        // Closing the file writes it back, but flushes nothing.
        fs::write(mount.join("lost"), vec![7; 8 << 20]).unwrap();
        mount.signal(Signal::KILL);
        mount.kill();
        device.recover();
        let mount = Mounting::new(&device.path).start();
        assert_eq!(fs::read(mount.join("kept")).unwrap(), b"contents", "{format:?}");
        fs::write(mount.join("new"), "new").unwrap();
        File::open(mount.join("new")).unwrap().sync_all().unwrap();
        let unmounted = crate::mount::unmount_when_free(mount.path());
        assert!(unmounted.status.success(), "{unmounted:?}");
        let (status, said) = mount.wait();
        assert!(status.success(), "{said}");
        place::judge(&device.file());
    }
}
