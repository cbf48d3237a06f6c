//! Export of images as network block devices (`diskwright serve`).
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use diskwright::ImageOptions;
//! use diskwright::serve::{Address, Service};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let address: Address = "127.0.0.1:10809".parse()?;
//! let service = Service::open("root.img".as_ref(), &ImageOptions::default(), &address, true)?;
//! println!("nbd://{}", service.address());
//! service.serve(&AtomicBool::new(false))?;
//! # Ok(()) }
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use disk::BlockDevice;

pub use remote::nbd::{Address, AddressError};

use crate::image::{open_device, window};
use crate::{Error, ImageOptions, Result, lock};

/// Export of an image, or a partition of a disk, to NBD clients. Clients receive the raw bytes, whatever they contain.
pub struct Service {
    server: remote::nbd::Server,
    image: PathBuf,
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
        address: &Address,
        read_only: bool,
    ) -> Result<Self> {
        let read_only = read_only || options.norecovery;
        let device = device(image, options, read_only)?;
        let server = remote::nbd::Server::bind(address, device, "", read_only)
            .map_err(|e| Error::host("listen at", address.to_string(), e))?;
        Ok(Self { server, image: image.to_owned() })
    }

    /// Returns the address: with TCP, including the port chosen for port 0.
    pub fn address(&self) -> &Address {
        self.server.address()
    }

    /// Serves until `stop` is set, then makes all writes durable.
    ///
    /// # Errors
    /// If connections cannot be accepted, or the image cannot be written.
    pub fn serve(self, stop: &AtomicBool) -> Result<()> {
        self.server.serve(stop).map_err(|e| Error::host("serve", &self.image, e))
    }
}

/// Opens the device to serve.
fn device(image: &Path, options: &ImageOptions, read_only: bool) -> Result<Arc<dyn BlockDevice>> {
    options
        .devices
        .require_none("clients get the bytes of one device; serve each with a command")?;
    #[cfg(feature = "anywhere")]
    if let Some(device) = crate::volume::device(image, read_only)? {
        return window(image, device, options);
    }
    if read_only {
        return open_device(image, options);
    }
    let device = lock::device(image, lock::open_to_write(image)?)?;
    window(image, Arc::new(device), options)
}
