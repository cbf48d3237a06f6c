//! FUSE mounts.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;

use fuse::{Adapter, Durable, OnDamage, SpaceKeeper, Syncer};
use linux::{Session, SessionOptions, Unmounter};

use super::opening;
use super::options::MountOptions;
use super::served::ServingLock;
use crate::lock::{DeviceClaim, Ending};
use crate::scout::mounted::TreeReads;
use crate::{Error, Image, Result};

/// Mount type after `fuse.`.
const SUBTYPE: &str = "diskwright";

/// Maximum block size of a block device mount, in bytes: the page size of most machines.
const BLOCK_SIZE_MAX: u32 = 4096;

/// Mounted image. Requests wait until [`Self::serve`] answers them. If dropped without serving, the image is unmounted
/// and closed.
pub struct Mount {
    // Declared before the image, so that it is dropped first.
    session: Session,
    image: Image,
    /// Source name in `/proc/mounts`.
    name: OsString,
    options: MountOptions,
    /// Entry for writable images that are not local files. Waiting programs must find the image closed, so it is dropped
    /// after the image.
    served: Option<ServingLock>,
}

impl Image {
    /// Mounts the image by mount(2) if permitted, otherwise by `fusermount3`. An image that was opened by
    /// [`ImageOptions::open_to_mount`](crate::ImageOptions::open_to_mount) may be read-only.
    ///
    /// # Errors
    /// If it cannot be mounted. The image has been closed then.
    ///
    /// # Example
    /// ```no_run
    /// use diskwright::ImageOptions;
    /// use diskwright::mount::MountOptions;
    ///
    /// # fn main() -> diskwright::Result<()> {
    /// let image = ImageOptions::new().write(true).open_to_mount("root.img")?;
    /// let mount = image.mount("/mnt", MountOptions::default())?;
    /// let unmounter = mount.unmounter();
    /// let server = std::thread::spawn(|| mount.serve(|| println!("it can be used")));
    /// // ... any program can work in /mnt ...
    /// unmounter.unmount().expect("it is mounted");
    /// server.join().expect("it does not panic")
    /// # }
    /// ```
    pub fn mount(mut self, mountpoint: impl AsRef<Path>, options: MountOptions) -> Result<Mount> {
        let name = opening::take_name(&mut self);
        let served = ServingLock::of(&self, &name);
        match mount_in_kernel(&mut self, &name, mountpoint.as_ref(), &options) {
            Ok(session) => Ok(Mount { session, image: self, name, options, served }),
            Err(error) => {
                self.close()?;
                Err(error)
            }
        }
    }
}

impl Mount {
    /// Returns a handle that unmounts from any thread.
    pub fn unmounter(&self) -> Unmounter {
        self.session.unmounter()
    }

    /// Calls `ready` when the mount is usable, answers requests until it is unmounted, then makes all changes durable
    /// and closes the image.
    ///
    /// # Errors
    /// If the session fails, the image cannot be written or closed, damage was found ([`Error::FoundDamaged`]), or it
    /// was shut down ([`Error::ShutDown`]). In the last two cases, unless [`OnDamage::Continue`] was set, nothing was
    /// written after the event, and the image is in the state after a crash.
    pub fn serve(self, ready: impl FnOnce()) -> Result<()> {
        let Self { session, image, name, options, served: _served } = self;
        let session_options = SessionOptions {
            // Requests to a remote image may wait for a server.
            threads: options.thread_count(opening::is_place(image.path())),
            io_uring: options.io_uring,
        };
        let fs = image.file_system()?;
        let is_read_only = is_read_only(&image, &options);
        let tree_reads = fs.is_far().then(TreeReads::default);
        let mut adapter = Adapter::new(&*fs, options.adapter(is_read_only));
        if let Some(reads) = &tree_reads {
            adapter = adapter.observed(reads);
        }
        let keeps_space = !is_read_only && !options.sync;
        let write_back = keeps_space.then(|| session.write_back().ok()).flatten();
        let name = PathBuf::from(name);
        let (served, _ending) = thread::scope(|scope| {
            let interval = options.sync_interval.filter(|_| !is_read_only);
            let _syncer = interval.map(|interval| Syncer::start(scope, &adapter, interval));
            let _scout = tree_reads.as_ref().map(|reads| reads.start(scope, &*fs));
            let mut keeper = None;
            let served = session.serve(
                &Durable::new(&adapter, options.sync, options.dirsync),
                &session_options,
                || {
                    // Start after requests are answered, because it sends some.
                    keeper = write_back.map(|cache| SpaceKeeper::start(scope, &adapter, cache));
                    ready();
                },
            );
            // Mark the end before joining the syncer, which may take long. For device mounts, the kernel waits itself.
            (served, Ending::mark(&name))
        });
        let finished = adapter.finish();
        let is_damaged = adapter.is_damaged() || matches!(finished, Err(vfs::Error::Corrupt(_)));
        let is_shut_down = adapter.is_shut_down();
        drop(adapter);
        drop(fs);
        if is_shut_down {
            // Later changes are not written. umount(2) returns after this.
            image.abandon();
            return Err(Error::ShutDown { image: name });
        }
        if is_damaged && options.on_damage != OnDamage::Continue {
            image.abandon();
        } else {
            image.close()?;
        }
        served.map_err(|e| Error::host("serve the mount of", &name, e))?;
        if is_damaged {
            return Err(Error::FoundDamaged { image: name });
        }
        finished.map_err(|source| Error::Image { image: name, source })
    }
}

/// Mounts a block device as `fuseblk` if the kernel can. The kernel then forwards syncfs(2), and umount(2) waits until
/// the image is closed. Not possible with another source name (`fsname=`).
fn mount_in_kernel(
    image: &mut Image,
    name: &OsString,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Session> {
    let plain = kernel_options(image, name, options);
    if options.fs_name.is_none()
        && let Some(claim) = image.mounting.claim.take()
    {
        let totals = image.statfs();
        // Between this and the kernel's own claim, only another mount can claim the device.
        drop(claim);
        let block_size = totals.ok().map(|totals| totals.block_size.min(BLOCK_SIZE_MAX));
        let of_device = linux::MountOptions { block_size, ..plain.clone() };
        if let Ok(session) = Session::mount(mountpoint, &of_device) {
            return Ok(session);
        }
        // Claim the device again after the kernel did not mount it.
        image.mounting.claim = Some(DeviceClaim::new(Path::new(name))?);
    }
    Session::mount(mountpoint, &plain).map_err(Error::Mount)
}

/// Returns whether the mount is read-only, by request or because the image is.
fn is_read_only(image: &Image, options: &MountOptions) -> bool {
    options.read_only || !image.is_writable()
}

/// Returns the options of the kernel mount.
fn kernel_options(image: &Image, name: &OsString, options: &MountOptions) -> linux::MountOptions {
    linux::MountOptions {
        fs_name: options.fs_name.as_ref().unwrap_or(name).clone(),
        subtype: SUBTYPE.into(),
        read_only: is_read_only(image, options),
        allow_other: options.allow_other,
        suid: options.suid,
        dev: options.dev,
        noexec: !options.exec,
        nosymfollow: options.nosymfollow,
        sync: options.sync,
        dirsync: options.dirsync,
        block_size: None,
    }
}
