//! Images as directories: what `diskwright mount` and `unmount` do.
//!
//! An [`OpenToMount`] image becomes a [`Mount`], which answers the kernel's requests in this process
//! (FUSE) until it is unmounted, and then closes the image:
//!
//! ```no_run
//! use diskwright::OpenImage;
//! use diskwright::mount::{Mount, MountOptions, OpenToMount};
//!
//! # fn main() -> diskwright::Result<()> {
//! let image = OpenToMount::open("root.img".as_ref(), &OpenImage::default(), false)?;
//! let mount = Mount::new(image, "/mnt".as_ref(), MountOptions::default())?;
//! let unmounter = mount.unmounter();
//! let server = std::thread::spawn(|| mount.serve(|| println!("it can be used")));
//! // ... any program can work in /mnt ...
//! unmounter.unmount().expect("it is mounted");
//! server.join().expect("it does not panic")
//! # }
//! ```
//!
//! No thread that answers requests may wait for an answer: a program must not use its own mount on the
//! thread that serves it, nor hold a lock there that [`Mount::serve`] needs.

mod image;
mod options;
mod served;
mod signals;
mod unmount;

use std::path::{Path, PathBuf};
use std::thread;

use fuse::{Adapter, Durable, SpaceKeeper, Syncer};
use fuse_device::{Session, SessionOptions};

pub use fuse::{AccessTimes, OnDamage};
pub use fuse_device::Unmounter;
pub use image::OpenToMount;
pub use options::MountOptions;
pub use signals::unmount_on_signals;
pub use unmount::{Released, UnmountOptions, unmount};

use crate::lock::Ending;
use crate::{Error, Result};

/// What mounts of ours are called, after `fuse.`.
const SUBTYPE: &str = "diskwright";

/// Largest block of a block device's mount, in bytes: a page of most machines.
const BLOCK_SIZE_MAX: u32 = 4096;

/// An image that is mounted. Requests wait until [`Self::serve`] answers them.
///
/// Dropped without that, it is unmounted, and an image that can be changed is left as after a crash,
/// though nothing was changed.
pub struct Mount {
    // Before the image: it goes first.
    session: Session,
    image: OpenToMount,
    options: MountOptions,
}

impl Mount {
    /// Mounts an image: by mount(2) where that is allowed, and else by `fusermount3`.
    ///
    /// # Errors
    /// If it cannot be mounted there; the image has been closed then.
    pub fn new(
        image: impl Into<OpenToMount>,
        mountpoint: &Path,
        options: MountOptions,
    ) -> Result<Self> {
        let mut image = image.into();
        match mount_in_kernel(&mut image, mountpoint, &options) {
            Ok(session) => Ok(Self { session, image, options }),
            Err(error) => {
                image.close()?;
                Err(error)
            }
        }
    }

    /// What unmounts it, from any thread.
    pub fn unmounter(&self) -> Unmounter {
        self.session.unmounter()
    }

    /// Calls `ready` when the mount can be used, answers requests until it is unmounted, makes all
    /// changes durable and closes the image.
    ///
    /// # Errors
    /// If the session fails, if the image cannot be written or closed, or if it was found to be damaged
    /// ([`Error::FoundDamaged`]), or shut down ([`Error::ShutDown`]). After that, and unless [`OnDamage::Continue`] was asked for, nothing was written from
    /// then on, and the image is as after a crash.
    pub fn serve(self, ready: impl FnOnce()) -> Result<()> {
        let Self { session, image, options } = self;
        let session_options = SessionOptions {
            threads: options.thread_count(image.is_place()),
            io_uring: options.io_uring,
        };
        let adapter =
            Adapter::new(image.file_system(), options.adapter(is_read_only(&image, &options)));
        let keeps_space = !is_read_only(&image, &options) && !options.sync;
        let write_back = keeps_space.then(|| session.write_back().ok()).flatten();
        let name = PathBuf::from(image.name());
        let (served, _ending) = thread::scope(|scope| {
            let interval = options.sync_interval.filter(|_| !is_read_only(&image, &options));
            let _syncer = interval.map(|interval| Syncer::start(scope, &adapter, interval));
            let mut keeper = None;
            let served = session.serve(
                &Durable::new(&adapter, options.sync, options.dirsync),
                &session_options,
                || {
                    // Not before requests are answered: it makes some.
                    keeper = write_back.map(|cache| SpaceKeeper::start(scope, &adapter, cache));
                    ready();
                },
            );
            // Before the syncer has ended, which may take long. The kernel waits for a mount of a device itself.
            (served, Ending::mark(&name))
        });
        let finished = adapter.finish();
        let is_damaged = adapter.is_damaged() || matches!(finished, Err(vfs::Error::Corrupt(_)));
        let is_shut_down = adapter.is_shut_down();
        drop(adapter);
        if is_shut_down {
            // Dropped without being closed: nothing more is written. umount(2) returns after that.
            drop(image);
            return Err(Error::ShutDown { image: name });
        }
        if !is_damaged || options.on_damage == OnDamage::Continue {
            image.close()?;
        }
        served.map_err(|e| Error::host("serve the mount of", &name, e))?;
        if is_damaged {
            return Err(Error::FoundDamaged { image: name });
        }
        finished.map_err(|source| Error::Image { image: name, source })
    }
}

/// Mounts a block device as one if the kernel can (`fuseblk`): it then passes syncfs(2) on, and umount(2) waits until the
/// image is closed. A mount with another name (`fsname=`) cannot be one.
fn mount_in_kernel(
    image: &mut OpenToMount,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Session> {
    let plain = kernel_options(image, options);
    if options.fs_name.is_none()
        && let Some(claim) = image.take_claim()
    {
        let totals = image.file_system().statfs();
        // Between this and the kernel's own claim, only another mount can take the device.
        drop(claim);
        let block_size = totals.ok().map(|totals| totals.block_size.min(BLOCK_SIZE_MAX));
        let of_device = fuse_device::MountOptions { block_size, ..plain.clone() };
        if let Ok(session) = Session::mount(mountpoint, &of_device) {
            return Ok(session);
        }
        image.claim_again()?;
    }
    Session::mount(mountpoint, &plain).map_err(Error::Mount)
}

/// Whether nothing may be changed: nobody asked for it, or the image is open for reading only.
fn is_read_only(image: &OpenToMount, options: &MountOptions) -> bool {
    options.read_only || image.is_read_only()
}

/// How the kernel mounts.
fn kernel_options(image: &OpenToMount, options: &MountOptions) -> fuse_device::MountOptions {
    fuse_device::MountOptions {
        fs_name: options.fs_name.as_ref().unwrap_or(image.name()).clone(),
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
