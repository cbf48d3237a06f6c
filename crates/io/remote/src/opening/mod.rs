//! Opens places for reading, with the metadata bundles of objects and published images.

mod bundled;
mod device;
mod frames;

use std::fs::File;
use std::sync::Arc;

use disk::FileDevice;
use disk::address::Address;
use thiserror::Error;

use crate::place::disk::{DiskError, VirtualDisk};
use crate::place::lazy::{FetchError, LazyDevice, LazyOptions};
use crate::place::object::ObjectSource;
use crate::place::runtime;
use crate::place::store::{self, StoreError};
use crate::place::zstd::{ZstdError, ZstdSource};
use crate::place::{ImageLocation, NamedFiles, OpenPlace};

pub use bundled::{ImageToBundle, SUFFIX, address_of, open_object, open_published};
pub use device::BundledDevice;

/// The reason why a place cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Invalid address or configuration.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Error of reading an object.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Error of opening a virtual disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Error of opening seekable zstd.
    #[error(transparent)]
    Zstd(#[from] ZstdError),
    /// Kind of place that this crate cannot open.
    #[error("{0}: this kind of address is not supported")]
    Kind(Address),
}

impl ImageLocation {
    /// Opens the place for reading. `file` is the file that [`Self::file`] names, opened and locked. `named` opens the
    /// files that a virtual disk names.
    ///
    /// # Errors
    /// If it does not exist or is invalid.
    pub fn open(
        &self,
        file: Option<File>,
        named: NamedFiles<'_>,
        options: &LazyOptions,
    ) -> Result<OpenPlace, OpenError> {
        match self {
            Self::Object(address) => object(address, options),
            Self::Disk(kind, path) => {
                let device = Arc::new(VirtualDisk::open(kind, path, false, file, named)?);
                Ok(OpenPlace { device, identity: None })
            }
            Self::Zstd(path) => {
                let name = disk::address::shown(path.as_os_str().as_encoded_bytes());
                runtime::start()
                    .map_err(|source| ZstdError::Read { name: name.clone(), source })?;
                let failed = |source| ZstdError::Read { name: name.clone(), source };
                let file = file.map_or_else(|| File::open(path), Ok).map_err(failed)?;
                let device = Arc::new(FileDevice::new(file).map_err(failed)?);
                // A local file has no version that could be a key of the disk cache, and needs no cache.
                let options = LazyOptions { disk: None, ..options.clone() };
                let source = ZstdSource::open(device, &name, &name)?;
                let device = Arc::new(LazyDevice::new(Arc::new(source), options));
                Ok(OpenPlace { device, identity: None })
            }
            Self::Nbd(address) => Err(OpenError::Kind(address.clone())),
        }
    }
}

fn object(address: &Address, options: &LazyOptions) -> Result<OpenPlace, OpenError> {
    let location = store::open(address)?;
    let name = address.to_string();
    if !name.ends_with(".zst") {
        return Ok(open_object(location, options)?);
    }
    let source = ObjectSource::of(location)?;
    let lazy = Arc::new(LazyDevice::new(Arc::new(source), options.clone()));
    let identity = lazy.identity().to_owned();
    // Only the compressed bytes are cached on disk.
    let above = LazyOptions { disk: None, ..options.clone() };
    let source = ZstdSource::open(lazy, &name, &identity)?;
    let device = Arc::new(LazyDevice::new(Arc::new(source), above));
    Ok(OpenPlace { identity: Some(device.identity().to_owned()), device })
}
