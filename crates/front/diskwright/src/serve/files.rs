//! The files of an image, by NFS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use nfs::{ExportPath, NfsCallers, NfsOptions, NfsServer};

use crate::{Error, Image, ImageOptions, Result};

/// Export of the files of an image by NFSv3 and MOUNTv3, on one TCP port without a portmapper.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NfsExport {
    /// Address to listen at. Port 0 chooses a free port.
    pub address: SocketAddr,
    /// Path that clients mount. `None` chooses a secret one of 128 random bits.
    pub path: Option<ExportPath>,
    /// Permit addresses that other hosts can reach.
    pub allow_remote: bool,
    /// Check the users that clients claim to be (`AUTH_SYS`) against permissions. Otherwise every client has all rights.
    pub check_permissions: bool,
    /// Owner of new files, unless permissions are checked.
    pub owner: (u32, u32),
    /// Make changes of names and attributes durable before they are answered. Otherwise they become durable within some
    /// seconds.
    pub sync: bool,
}

impl NfsExport {
    /// Returns an export at an address, with a secret path, and without checks of permissions.
    pub fn new(address: SocketAddr) -> Self {
        let (allow_remote, check_permissions, owner) = (false, false, owner_of_process());
        Self { address, path: None, allow_remote, check_permissions, owner, sync: true }
    }
}

/// Addresses of an export for its clients. They contain its path, which may be a secret.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NfsAddresses {
    /// Host and port.
    pub host_and_port: String,
    /// Address for programs with libnfs.
    pub url: String,
    /// Command that mounts the export on Linux, without the directory.
    pub linux_command: String,
    /// Command that mounts the export on macOS, without the directory.
    pub macos_command: String,
}

/// Server of the files of an image.
pub(super) struct FileServer {
    server: NfsServer,
    image: Image,
    path: PathBuf,
    addresses: NfsAddresses,
}

impl FileServer {
    pub(super) fn open(
        path: &Path,
        options: &ImageOptions,
        export: &NfsExport,
        read_only: bool,
    ) -> Result<Self> {
        if !export.address.ip().is_loopback() && !export.allow_remote {
            return Err(Error::Usage(format!(
                "{}: other hosts can reach this address, and NFS has no passwords; permit it with --allow-remote, \
                 or use 127.0.0.1",
                export.address
            )));
        }
        let image = open_image(path, options, read_only)?;
        let server = listen(path, &image, export, read_only)?;
        let addresses = NfsAddresses {
            host_and_port: server.address().to_string(),
            url: server.url(),
            linux_command: server.linux_command(),
            macos_command: server.macos_command(),
        };
        Ok(Self { server, image, path: path.to_owned(), addresses })
    }

    pub(super) fn addresses(&self) -> &NfsAddresses {
        &self.addresses
    }

    /// Serves until `stop` is set, then closes the image. After damage nothing is written, and the image is left as
    /// after a crash.
    pub(super) fn serve(self, stop: &AtomicBool) -> Result<()> {
        let Self { server, image, path, .. } = self;
        let served = {
            let fs = image.file_system()?;
            server.serve(&*fs, stop)
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

fn listen(path: &Path, image: &Image, export: &NfsExport, read_only: bool) -> Result<NfsServer> {
    let random = || ExportPath::random().map_err(|e| Error::host("serve", path, e));
    let export_path = export.path.clone().map_or_else(random, Ok)?;
    let (uid, gid) = export.owner;
    let callers = match export.check_permissions {
        true => NfsCallers::Checked,
        false => NfsCallers::Unchecked { uid, gid },
    };
    let mut options = NfsOptions::new(export_path, image.info()?.uuid);
    (options.read_only, options.callers, options.sync) = (read_only, callers, export.sync);
    NfsServer::bind(export.address, options)
        .map_err(|e| Error::host("listen at", export.address.to_string(), e))
}

/// Returns user and group of this process; root where the host has none.
fn owner_of_process() -> (u32, u32) {
    #[cfg(target_os = "linux")]
    return (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    #[cfg(not(target_os = "linux"))]
    (0, 0)
}
