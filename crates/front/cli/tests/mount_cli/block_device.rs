//! Mounts of block devices of type `fuseblk`.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::syncfs;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::Signal;
use testkit::{LoopDevice, judge, require};

use crate::mount::{Mounted, Mounting, Point, unmount_when_free, wait_until};
use crate::mount_cli::common::{on_each_format, one_mount_table};
use crate::place::{has_compiler, probe, run, tool};

fn type_of(point: &Path) -> String {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mut lines = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    lines.find(|words| Path::new(words[1]) == point).expect("it is mounted")[2].to_owned()
}

/// Runs a test on a device with an image of each format.
fn on_each_device(test: impl Fn(&Path, &Path)) {
    on_each_format(|_, image| {
        let device = LoopDevice::new(image);
        test(device.path(), image);
        drop(device);
        judge(image);
    });
}

/// Calls umount(2) when the mount is no longer in use.
fn umount(point: &Path) {
    wait_until("nobody to use the mount", || unmount(point, UnmountFlags::empty()).is_ok());
}

#[test]
fn it_is_released_when_umount_returns() {
    require!(Root, Loop, Fuse, Tool("losetup"), Tool("e2fsck"), Tool("xfs_repair"));
    let _one = one_mount_table();
    on_each_device(|device, _| {
        for round in 0..testkit::effort(4, 20, 200) {
            let mounted = Mounted::new(device);
            assert_eq!(type_of(mounted.path()), "fuseblk.diskwright");
            let name = format!("file {}", round % 8);
            fs::write(mounted.join(&name), vec![7; 2 << 20]).unwrap();
            umount(mounted.path());
            // Immediately: no other program waits either.
            let free = File::options().read(true).write(true).open(device).unwrap();
            assert!(free.try_lock().is_ok(), "round {round}: the server has the device");
            drop(free);
            let (status, said) = mounted.wait();
            assert_eq!((status.code(), said.as_str()), (Some(0), ""));
        }
        // diskwright unmount and signals do the same.
        let mounted = Mounted::new(device);
        mounted.unmount();
        let mounted = Mounted::new(device);
        mounted.signal(Signal::TERM);
        assert_eq!(mounted.wait().0.code(), Some(0));
    });
}

#[test]
fn syncfs_makes_everything_durable() {
    require!(Root, Loop, Fuse, Tool("losetup"), Tool("mount"), Tool("e2fsck"), Tool("xfs_repair"));
    on_each_device(|device, _| {
        let mounted = Mounting::new(device).options("commit=0").start();
        fs::create_dir(mounted.join("dir")).unwrap();
        fs::write(mounted.join("dir/synced"), vec![5; 100_000]).unwrap();
        fs::hard_link(mounted.join("dir/synced"), mounted.join("link")).unwrap();
        syncfs(File::open(mounted.path()).unwrap()).unwrap();
        mounted.signal(Signal::KILL);
        mounted.kill();
        let mounted = Mounting::new(device).options("commit=0").start();
        assert_eq!(fs::read(mounted.join("link")).unwrap(), vec![5; 100_000]);
        // A remount to read-only first makes all changes durable.
        fs::rename(mounted.join("link"), mounted.join("renamed")).unwrap();
        run(tool("mount").args(["-i", "-o", "remount,ro"]).arg(mounted.path()));
        mounted.signal(Signal::KILL);
        mounted.kill();
        let mounted = Mounted::new(device);
        assert_eq!(fs::read(mounted.join("renamed")).unwrap(), vec![5; 100_000]);
        assert!(!mounted.join("link").exists());
        mounted.unmount();
    });
}

/// `FIBMAP`.
const FIBMAP: u32 = 1;

/// Returns the device blocks of a file.
fn places(path: &Path, blocks: u32) -> Vec<u32> {
    let place = |block: u32| {
        let answer = probe::ioctl(path, FIBMAP, &block.to_ne_bytes()).unwrap();
        u32::from_ne_bytes(answer.try_into().unwrap())
    };
    (0..blocks).map(place).collect()
}

#[test]
fn blocks_are_where_the_kernel_finds_them() {
    require!(Root, Loop, Fuse, Mount("ext4"), Mount("xfs"), Tool("losetup"));
    require!(Tool("e2fsck"), Tool("xfs_repair"));
    if !has_compiler("blocks_are_where_the_kernel_finds_them") {
        return;
    }
    on_each_device(|device, image| {
        let mounted = Mounted::new(device);
        let file = File::create(mounted.join("file")).unwrap();
        file.write_all_at(&[1; 4096 * 3], 4096).unwrap();
        file.write_all_at(&[2; 5000], 4096 * 7).unwrap();
        drop(file);
        // Blocks may not be written back yet.
        let ours = places(&mounted.join("file"), 9);
        assert_eq!(ours.iter().filter(|place| **place == 0).count(), 4, "{ours:?}");
        mounted.unmount();
        let format = testkit::Format::of(image).kernel_name();
        let mount = testkit::KernelMount::new(device, &testkit::MountOptions::read_only(format));
        assert_eq!(places(&mount.path().join("file"), 9), ours);
        mount.unmount();
    });
}

#[test]
fn only_writers_of_whole_devices_are_mounted_so() {
    require!(Root, Loop, Fuse, Tool("losetup"), Tool("mount"), Tool("e2fsck"), Tool("xfs_repair"));
    on_each_device(|device, image| {
        // Several read-only mounts may share a device.
        let readers = [(); 2].map(|()| Mounting::new(device).options("ro").start());
        for reader in readers {
            assert_eq!(type_of(reader.path()), "fuse.diskwright");
            umount(reader.path());
            assert!(reader.wait().0.success());
        }
        let named = Mounting::new(device).options("fsname=a name").start();
        assert_eq!(type_of(named.path()), "fuse.diskwright");
        umount(named.path());
        assert!(named.wait().0.success());
        // While it is mounted, no other program can open it exclusively.
        let mounted = Mounted::new(device);
        let second = crate::program::diskwright().arg("trim").arg(device).output().unwrap();
        let said = String::from_utf8_lossy(&second.stderr);
        assert!(said.contains("mounted at"), "{said}");
        let format = testkit::Format::of(image).kernel_name();
        let other = Point::new();
        let mut mount = tool("mount");
        mount.args(["-t", format]).arg(device).arg(other.path());
        assert!(!mount.output().unwrap().status.success(), "the kernel mounts it, too");
        // A killed server leaves a mount that can be removed, and a device that can be mounted
        // again.
        mounted.signal(Signal::KILL);
        thread::sleep(Duration::from_millis(20));
        let unmounted = unmount_when_free(mounted.path());
        assert_eq!(unmounted.status.code(), Some(4), "{unmounted:?}");
        mounted.kill();
        Mounted::new(device).unmount();
    });
}
