//! Opening a place to read it.

use std::fs::File;
use std::sync::Arc;

use address::Address;
use blockdev::{BlockDevice, FileDevice};
use thiserror::Error;

use crate::disk::{DiskError, VirtualDisk};
use crate::lazy::{FetchError, LazyDevice, LazyOptions};
use crate::object::ObjectSource;
use crate::runtime;
use crate::store::{self, StoreError};
use crate::zstd::{ZstdError, ZstdSource};
use crate::{NamedFiles, Place};

/// Why a place cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The address or the configuration is wrong.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be read.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// It is no virtual disk that can be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// It is not compressed so that it can be read in parts.
    #[error(transparent)]
    Zstd(#[from] ZstdError),
    /// Nothing here reads places of this kind.
    #[error("{0}: places of this kind are not read")]
    Kind(Address),
}

/// A place that is open to be read.
pub struct OpenPlace {
    /// Its contents.
    pub device: Arc<dyn BlockDevice>,
    /// What they are, if that can be said: two places that say the same have the same bytes.
    pub identity: Option<String>,
}

impl Place {
    /// The local file that the place lies in, if it lies in one.
    #[must_use]
    pub fn file(&self) -> Option<&std::path::Path> {
        match self {
            Self::Disk(_, file) | Self::Zstd(file) => Some(file),
            Self::Object(_) | Self::Nbd(_) => None,
        }
    }

    /// Opens it to read it; `file` is what [`Self::file`] names, opened and locked. `named` opens the files that a virtual
    /// disk names.
    ///
    /// # Errors
    /// If it is not there, or is not what it should be.
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
                let name = address::shown(path.as_os_str().as_encoded_bytes());
                runtime::start()
                    .map_err(|source| ZstdError::Read { name: name.clone(), source })?;
                let failed = |source| ZstdError::Read { name: name.clone(), source };
                let file = file.map_or_else(|| File::open(path), Ok).map_err(failed)?;
                let device = Arc::new(FileDevice::new(file).map_err(failed)?);
                // A local file has no version that a cache on disk could know it by, and is on disk.
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
    let source = Arc::new(ObjectSource::of(store::open(address)?)?);
    let name = address.to_string();
    let lazy = Arc::new(LazyDevice::new(source, options.clone()));
    let identity = lazy.identity().to_owned();
    if !name.ends_with(".zst") {
        return Ok(OpenPlace { device: lazy, identity: Some(identity) });
    }
    // What is kept on disk is what was sent.
    let above = LazyOptions { disk: None, ..options.clone() };
    let source = ZstdSource::open(lazy, &name, &identity)?;
    let device = Arc::new(LazyDevice::new(Arc::new(source), above));
    Ok(OpenPlace { identity: Some(device.identity().to_owned()), device })
}
