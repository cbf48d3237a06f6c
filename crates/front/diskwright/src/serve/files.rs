//! The files of an image, by a protocol.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use vfs::FileSystem;
use vfs::peer::LocalUsers;
use vfs::served::ServedOutcome;

use crate::{Error, Image, ImageOptions, Result};

/// Protocol that serves files to clients.
pub(crate) trait FileProtocol {
    /// Serves until `stop` is set, then makes all changes durable.
    fn serve(&self, fs: &dyn FileSystem, stop: &AtomicBool) -> io::Result<ServedOutcome>;
}

/// Server of the files of an image.
pub(crate) struct FileServer<P> {
    protocol: P,
    image: Image,
    path: PathBuf,
}

impl<P: FileProtocol> FileServer<P> {
    /// Opens an image, and starts listening with `listen`.
    pub(super) fn open(
        path: &Path,
        options: &ImageOptions,
        read_only: bool,
        listen: impl FnOnce(&Image) -> Result<P>,
    ) -> Result<Self> {
        let image = open_image(path, options, read_only)?;
        let protocol = listen(&image)?;
        Ok(Self::new(image, path, protocol))
    }

    /// Creates the server of an open image.
    pub(super) fn new(image: Image, path: &Path, protocol: P) -> Self {
        Self { protocol, image, path: path.to_owned() }
    }

    pub(crate) fn protocol(&self) -> &P {
        &self.protocol
    }

    /// Serves until `stop` is set, then closes the image. After damage nothing is written, and the image is left as
    /// after a crash.
    pub(crate) fn serve(self, stop: &AtomicBool) -> Result<()> {
        let Self { protocol, image, path } = self;
        let served = {
            let fs = image.file_system()?;
            protocol.serve(&*fs, stop)
        };
        if served.as_ref().is_ok_and(|outcome| outcome.is_damaged) {
            image.abandon();
            return Err(Error::FoundDamaged { image: path });
        }
        let closed = image.close();
        served.map_err(|e| Error::host("serve", &path, e))?;
        closed
    }
}

fn open_image(path: &Path, options: &ImageOptions, read_only: bool) -> Result<Image> {
    let options = options.clone().write(!read_only);
    #[cfg(feature = "anywhere")]
    if let Some(device) = crate::volume::device(path, read_only)? {
        return options.open_named(path, device);
    }
    options.open(path)
}

/// Returns the users of this host whose programs may connect.
pub(super) fn local_users(allow_remote: bool, all_users: bool) -> LocalUsers {
    match sudo_user() {
        _ if allow_remote || all_users => LocalUsers::All,
        Some(user) => LocalUsers::OwnAnd(user),
        None => LocalUsers::Own,
    }
}

/// Returns the user who started this process of root with sudo(8).
#[cfg(unix)]
fn sudo_user() -> Option<u32> {
    let user = std::env::var("SUDO_UID").ok()?.parse().ok()?;
    rustix::process::geteuid().is_root().then_some(user)
}

#[cfg(not(unix))]
const fn sudo_user() -> Option<u32> {
    None
}

/// Returns user and group of this process; root where the host has none.
pub(super) fn owner_of_process() -> (u32, u32) {
    #[cfg(unix)]
    return (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    #[cfg(not(unix))]
    (0, 0)
}
