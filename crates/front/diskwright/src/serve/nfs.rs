//! The files of an image, by NFS.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nfs::{ExportPath, NfsCallers, NfsOptions, NfsServer};
use vfs::FileSystem;
use vfs::served::ServedOutcome;

use super::files::{FileProtocol, FileServer, local_users, owner_of_process};
use crate::{Error, Image, ImageOptions, Result};

/// Default of [`NfsExport::map_user`].
pub const MAPS_USER: bool = cfg!(any(target_os = "macos", target_os = "windows"));

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
    /// Permit programs of all users of this host at a loopback address. Otherwise, where the host lists the users of
    /// connections (Linux), only those of the user of this process and of root.
    pub all_users: bool,
    /// User of clients (`AUTH_SYS`) with access, besides root. `None` permits all.
    pub only_user: Option<u32>,
    /// Show all files as files of [`Self::owner`]. Changes keep the owners in the image. Not with
    /// [`Self::check_permissions`]. The default on macOS and Windows. Their users do not exist in images.
    pub map_user: bool,
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
        Self {
            address,
            path: None,
            allow_remote: false,
            all_users: false,
            only_user: None,
            map_user: MAPS_USER,
            check_permissions: false,
            owner: owner_of_process(),
            sync: true,
        }
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

/// NFS server with the addresses for its clients.
pub(crate) struct NfsProtocol {
    server: Arc<NfsServer>,
    addresses: NfsAddresses,
}

impl NfsProtocol {
    #[cfg(all(feature = "mount", unix))]
    pub(crate) fn server(&self) -> Arc<NfsServer> {
        Arc::clone(&self.server)
    }

    pub(super) fn addresses(&self) -> &NfsAddresses {
        &self.addresses
    }
}

impl FileProtocol for NfsProtocol {
    fn serve(&self, fs: &dyn FileSystem, stop: &AtomicBool) -> io::Result<ServedOutcome> {
        self.server.serve(fs, stop)
    }
}

pub(super) fn open(
    path: &Path,
    options: &ImageOptions,
    export: &NfsExport,
    read_only: bool,
) -> Result<FileServer<NfsProtocol>> {
    if !export.address.ip().is_loopback() && !export.allow_remote {
        return Err(Error::Usage(format!(
            "{}: other hosts can reach this address, and NFS has no passwords; permit it with --allow-remote, \
             or use 127.0.0.1",
            export.address
        )));
    }
    FileServer::open(path, options, read_only, |image| listen(path, image, export, read_only))
}

/// Starts listening for clients of an open image.
#[cfg(all(feature = "mount", unix))]
pub(crate) fn of_image(
    image: Image,
    path: &Path,
    export: &NfsExport,
    read_only: bool,
) -> Result<FileServer<NfsProtocol>> {
    let protocol = listen(path, &image, export, read_only)?;
    Ok(FileServer::new(image, path, protocol))
}

fn listen(path: &Path, image: &Image, export: &NfsExport, read_only: bool) -> Result<NfsProtocol> {
    if export.map_user && export.check_permissions {
        return Err(Error::Usage(
            "permissions are checked for the owners in the image, so they cannot be shown as other owners; leave out one \
             of the options"
                .into(),
        ));
    }
    let random = || ExportPath::random().map_err(|e| Error::host("serve", path, e));
    let export_path = export.path.clone().map_or_else(random, Ok)?;
    let (uid, gid) = export.owner;
    let callers = match export.check_permissions {
        true => NfsCallers::Checked,
        false => NfsCallers::Unchecked { uid, gid },
    };
    let mut options = NfsOptions::new(export_path, image.info()?.uuid);
    (options.read_only, options.callers, options.sync) = (read_only, callers, export.sync);
    options.only_user = export.only_user;
    options.shown_owner = export.map_user.then_some(export.owner);
    options.local_users = local_users(export.allow_remote, export.all_users);
    let server = NfsServer::bind(export.address, options)
        .map_err(|e| Error::host("listen at", export.address.to_string(), e))?;
    let addresses = NfsAddresses {
        host_and_port: server.address().to_string(),
        url: server.url(),
        linux_command: server.linux_command(),
        macos_command: server.macos_command(),
    };
    Ok(NfsProtocol { server: Arc::new(server), addresses })
}
