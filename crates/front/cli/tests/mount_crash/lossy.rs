//! Guarantees of fsync on a block device that loses power under load, or fails temporarily.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testkit::{KernelMount, MountOptions, effort, judge, require, wait_until};

use super::files::{churn, replace, version_of};
use crate::mount::{Mounted, Mounting, unmount_when_free};
use crate::mount_cli::common::{ext4, xfs};
use crate::place::Format;
use crate::place::lossy::LossyDevice;

const WRITERS: usize = 3;

/// Versions of the writers' files.
type Versions = [u64; WRITERS];

fn name(writer: usize) -> String {
    format!("file {writer}")
}

/// An image of a format on a lossy device.
struct Ground {
    format: Format,
    image: PathBuf,
    device: LossyDevice,
    _home: tempfile::TempDir,
}

impl Ground {
    fn new(format: Format) -> Self {
        let home = testkit::scratch();
        let image = if format == Format::Xfs { xfs(home.path()) } else { ext4(home.path()) };
        let device = LossyDevice::new(&image);
        let ground = Self { format, image, device, _home: home };
        let mounted = ground.mount("");
        fs::create_dir(mounted.join("shared")).unwrap();
        mounted.unmount();
        ground
    }

    fn mount(&self, options: &str) -> Mounted {
        let mounting = Mounting::new(self.device.path());
        if options.is_empty() { mounting } else { mounting.options(options) }.start()
    }

    /// Replaces files in several threads, and changes names in others, until the mount ends. Calls
    /// `harm` once all threads are working. Returns the versions that were acknowledged while the
    /// disk had power.
    fn under_load(&self, mounted: &Mounted, from: Versions, harm: impl FnOnce()) -> Versions {
        let durable = from.map(AtomicU64::new);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for (writer, durable) in durable.iter().enumerate() {
                let (root, device, is_over) = (mounted.path(), &self.device, &is_over);
                scope.spawn(move || {
                    let mut version = durable.load(Ordering::SeqCst) + 1;
                    while !is_over.load(Ordering::SeqCst)
                        && replace(root, &name(writer), version).is_ok()
                        && device.has_power()
                    {
                        durable.store(version, Ordering::SeqCst);
                        version += 1;
                    }
                });
            }
            let root = mounted.path();
            scope.spawn(move || churn(root, 0, from[0]));
            wait_until("all writers to be acknowledged", || {
                durable.iter().zip(from).all(|(now, from)| now.load(Ordering::SeqCst) > from + 2)
            });
            harm();
            is_over.store(true, Ordering::SeqCst);
        });
        durable.map(AtomicU64::into_inner)
    }

    /// Asserts that each file is complete and has the acknowledged version or the next one. Returns
    /// the versions.
    #[track_caller]
    fn check(&self, root: &Path, durable: Versions) -> Versions {
        let found = std::array::from_fn(|writer| version_of(&root.join(name(writer))).unwrap_or(0));
        for (found, durable) in found.iter().zip(durable) {
            assert!(
                *found == durable || *found == durable + 1,
                "{:?}: version {found}, acknowledged {durable}",
                self.format
            );
        }
        found
    }

    /// Recovers the image, by the kernel or by our driver, and checks it.
    #[track_caller]
    fn recover_and_check(&self, by_kernel: bool, durable: Versions) -> Versions {
        let found = if by_kernel {
            let options = MountOptions::read_write(self.format.kernel_name());
            let mount = KernelMount::new(self.device.path(), &options);
            let found = self.check(mount.path(), durable);
            mount.unmount();
            found
        } else {
            let mounted = self.mount("");
            let found = self.check(mounted.path(), durable);
            mounted.unmount();
            found
        };
        judge(&self.image);
        found
    }
}

fn needs_are_there() {
    require!(Root, Loop, Fuse, Mount("ext4"), Mount("xfs"), Tool("losetup"));
    require!(Tool("e2fsck"), Tool("xfs_repair"));
}

fn power_is_lost(format: Format) {
    needs_are_there();
    let mut random = fastrand::Rng::with_seed(17);
    let mut ground = Ground::new(format);
    let mut versions = [0; WRITERS];
    for round in 0..effort(1, 5, 100) {
        let mounted = ground.mount(["", "commit=0", "sync"][round % 3]);
        let delay = Duration::from_millis(random.u64(0..30));
        let durable = ground.under_load(&mounted, versions, || {
            thread::sleep(delay);
            ground.device.lose(&mut random);
            mounted.signal(Signal::KILL);
        });
        mounted.kill();
        ground.device.restart();
        versions = ground.recover_and_check(round % 2 == 1, durable);
        println!("round {round}: versions {versions:?} after {delay:?}");
    }
}

fn the_disk_fails(format: Format) {
    needs_are_there();
    let mut ground = Ground::new(format);
    let mut versions = [0; WRITERS];
    for round in 0..effort(1, 3, 50) {
        let mounted = ground.mount("");
        // All writers end with an error, because fsync fails.
        let durable = ground.under_load(&mounted, versions, || {
            ground.device.fail(true);
            wait_until("fsync to fail", || {
                File::open(mounted.path()).is_ok_and(|root| root.sync_all().is_err())
            });
        });
        ground.device.fail(false);
        // A lost change is never reported as durable: the mount accepts no changes until it is
        // mounted again.
        let after = replace(mounted.path(), "after", 1);
        assert!(after.is_err(), "fsync succeeds after a failure");
        let unmounted = unmount_when_free(mounted.path());
        assert_eq!(unmounted.status.code(), Some(4), "{unmounted:?}");
        let (status, said) = mounted.wait();
        assert_eq!(status.code(), Some(4), "{said}");
        ground.device.restart();
        versions = ground.recover_and_check(round % 2 == 1, durable);
        println!("round {round}: versions {versions:?}");
    }
}

#[test]
fn ext4_keeps_its_promises_when_power_is_lost() {
    power_is_lost(Format::Ext);
}

#[test]
fn xfs_keeps_its_promises_when_power_is_lost() {
    power_is_lost(Format::Xfs);
}

#[test]
fn ext4_keeps_its_promises_when_the_disk_fails() {
    the_disk_fails(Format::Ext);
}

#[test]
fn xfs_keeps_its_promises_when_the_disk_fails() {
    the_disk_fails(Format::Xfs);
}
