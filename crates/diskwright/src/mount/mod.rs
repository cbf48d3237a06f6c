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

use crate::{Error, Result};

/// What mounts of ours are called, after `fuse.`.
const SUBTYPE: &str = "diskwright";

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
        let image = image.into();
        match Session::mount(mountpoint, &kernel_options(&image, &options)) {
            Ok(session) => Ok(Self { session, image, options }),
            Err(error) => {
                image.close()?;
                Err(Error::Mount(error))
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
        let served = thread::scope(|scope| {
            let interval = options.sync_interval.filter(|_| !is_read_only(&image, &options));
            let _syncer = interval.map(|interval| Syncer::start(scope, &adapter, interval));
            let mut keeper = None;
            session.serve(
                &Durable::new(&adapter, options.sync, options.dirsync),
                &session_options,
                || {
                    // Not before requests are answered: it makes some.
                    keeper = write_back.map(|cache| SpaceKeeper::start(scope, &adapter, cache));
                    ready();
                },
            )
        });
        let name = PathBuf::from(image.name());
        let finished = adapter.finish();
        let is_damaged = adapter.is_damaged() || matches!(finished, Err(vfs::Error::Corrupt(_)));
        let is_shut_down = adapter.is_shut_down();
        drop(adapter);
        if is_shut_down {
            // What is left open is closed by nobody: nothing is to be written any more.
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
    }
}
