//! Export of images as network block devices, as disks of virtual machines, as block devices of the kernel, and of their
//! files by NFS and WebDAV (`diskwright serve`).
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use diskwright::ImageOptions;
//! use diskwright::serve::{Export, Service};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let export = Export::Nbd("127.0.0.1:10809".parse()?);
//! let service = Service::open("root.img".as_ref(), &ImageOptions::default(), &export, true)?;
//! service.serve(&AtomicBool::new(false), &mut |address| println!("nbd://{address}"))?;
//! # Ok(()) }
//! ```

mod files;
pub(crate) mod nfs;
#[cfg(all(feature = "mount", target_os = "linux"))]
mod ublk;
mod webdav;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use disk::BlockDevice;

pub use ::nfs::{ExportPath, ExportPathError};
pub use ::webdav::Symlinks;
pub use remote::nbd::{Address, AddressError};

pub use nfs::{MAPS_USER, NfsAddresses, NfsExport};
pub use webdav::{WebdavAddresses, WebdavExport};

use crate::image::{open_device, open_device_to_write};
#[cfg(feature = "anywhere")]
use crate::image::{window, window_to_write};
use crate::{Error, ImageOptions, Result};

/// Protocol and address of a service.
#[derive(Clone, Debug)]
pub enum Export {
    /// NBD at an address.
    Nbd(Address),
    /// vhost-user-blk at a Unix socket, for one virtual machine at a time. Linux only.
    VhostUser {
        /// Path of the socket.
        socket: PathBuf,
        /// Number of queues: 1 to 64.
        queues: usize,
    },
    /// The files of an image by NFSv3.
    Nfs(NfsExport),
    /// The files of an image by WebDAV.
    Webdav(WebdavExport),
    /// A block device of the kernel by ublk. Linux 6.5 and later, as root.
    #[cfg(feature = "mount")]
    Ublk {
        /// Number of queues: 1 to 64.
        queues: u16,
    },
}

/// Export of an image, or a partition of a disk. Clients of NFS and WebDAV receive its files, all others the raw bytes,
/// whatever they contain.
pub struct Service {
    server: Server,
    image: PathBuf,
}

enum Server {
    Nbd(remote::nbd::Server),
    #[cfg(target_os = "linux")]
    VhostUser(remote::vhost_user::Server),
    Nfs(Box<files::FileServer<nfs::NfsProtocol>>),
    Webdav(Box<files::FileServer<webdav::WebdavProtocol>>),
    #[cfg(all(feature = "mount", target_os = "linux"))]
    Ublk(Box<ublk::Server>),
}

impl Service {
    /// Opens an image and starts listening. A writable image is locked like by a mount, a read-only one like by reading
    /// commands. With [`ImageOptions::norecovery`] it is read-only and not locked.
    ///
    /// # Errors
    /// If the image cannot be opened or is in use, or the address is not available.
    pub fn open(
        image: &Path,
        options: &ImageOptions,
        export: &Export,
        read_only: bool,
    ) -> Result<Self> {
        let read_only = read_only || options.norecovery;
        let device = || device(image, options, read_only);
        let server = match export {
            Export::Nbd(address) => remote::nbd::Server::bind(address, device()?, "", read_only)
                .map(Server::Nbd)
                .map_err(|e| Error::host("listen at", address.to_string(), e))?,
            Export::VhostUser { socket, queues } => {
                vhost_user(image, device()?, socket, *queues, read_only)?
            }
            Export::Nfs(export) => {
                Server::Nfs(Box::new(nfs::open(image, options, export, read_only)?))
            }
            Export::Webdav(export) => {
                Server::Webdav(Box::new(webdav::open(image, options, export, read_only)?))
            }
            #[cfg(all(feature = "mount", target_os = "linux"))]
            Export::Ublk { queues } => ublk::Server::add(device()?, *queues, read_only)
                .map(|server| Server::Ublk(Box::new(server)))
                .map_err(|e| Error::host("add a device for", image, e))?,
            #[cfg(all(feature = "mount", not(target_os = "linux")))]
            Export::Ublk { .. } => {
                return Err(Error::Usage("ublk needs Linux; use NBD".into()));
            }
        };
        Ok(Self { server, image: image.to_owned() })
    }

    /// Returns the addresses for clients of NFS; `None` for other protocols.
    pub fn nfs_addresses(&self) -> Option<&NfsAddresses> {
        match &self.server {
            Server::Nfs(server) => Some(server.protocol().addresses()),
            _ => None,
        }
    }

    /// Returns the addresses for clients of WebDAV; `None` for other protocols.
    pub fn webdav_addresses(&self) -> Option<&WebdavAddresses> {
        match &self.server {
            Server::Webdav(server) => Some(server.protocol().addresses()),
            _ => None,
        }
    }

    /// Serves until `stop` is set, then makes all writes durable. `started` is called with the address when clients can
    /// use it: with TCP, including the port chosen for port 0; with ublk, the path of the block device.
    ///
    /// # Errors
    /// If connections cannot be accepted, the block device cannot be started, or the image cannot be written. With NFS
    /// and WebDAV, also if damage was found ([`Error::FoundDamaged`]).
    pub fn serve(self, stop: &AtomicBool, started: &mut dyn FnMut(&dyn Display)) -> Result<()> {
        let served = match self.server {
            Server::Nfs(server) => {
                started(&server.protocol().addresses().host_and_port);
                return server.serve(stop);
            }
            Server::Webdav(server) => {
                started(&server.protocol().addresses().host_and_port);
                return server.serve(stop);
            }
            Server::Nbd(server) => {
                started(server.address());
                server.serve(stop)
            }
            #[cfg(target_os = "linux")]
            Server::VhostUser(server) => {
                started(&Address::Unix(server.path().to_owned()));
                server.serve(stop)
            }
            #[cfg(all(feature = "mount", target_os = "linux"))]
            Server::Ublk(mut server) => {
                let path = server.path();
                server.serve(&mut || started(&path.display()), stop)
            }
        };
        served.map_err(|e| Error::host("serve", &self.image, e))
    }
}

/// Starts a disk of virtual machines. Its serial number is the name of the image.
#[cfg(target_os = "linux")]
fn vhost_user(
    image: &Path,
    device: Arc<dyn BlockDevice>,
    socket: &Path,
    queues: usize,
    read_only: bool,
) -> Result<Server> {
    let name = image.file_name().unwrap_or_default();
    let id = name.to_string_lossy().into_owned();
    let options = remote::vhost_user::Options { queues, read_only, id };
    remote::vhost_user::Server::bind(socket, device, &options)
        .map(Server::VhostUser)
        .map_err(|e| Error::host("listen at", socket, e))
}

#[cfg(not(target_os = "linux"))]
fn vhost_user(
    _image: &Path,
    _device: Arc<dyn BlockDevice>,
    _socket: &Path,
    _queues: usize,
    _read_only: bool,
) -> Result<Server> {
    Err(Error::Usage("vhost-user needs Linux; use NBD".into()))
}

/// Opens the device to serve.
fn device(image: &Path, options: &ImageOptions, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
    options
        .devices
        .require_none("clients get the bytes of one device; serve each with a command")?;
    #[cfg(feature = "anywhere")]
    if let Some(device) = crate::volume::device(image, read_only)? {
        return match read_only {
            true => window(image, device, options),
            false => window_to_write(image, device, options),
        };
    }
    if read_only {
        return open_device(image, options);
    }
    open_device_to_write(image, options)
}
