//! Locations with structure: published images, with addresses of the form PREFIX/names/NAME, volumes, and NBD exports.

use std::path::Path;
use std::sync::Arc;

use disk::address::Address;
use remote::nbd::Client;
use remote::opening::OpenError;
use remote::place::lazy::FetchError;
use remote::place::{ImageLocation, OpenPlace, store};

use super::named::{named, open_named};
use super::reading;
use crate::{Error, Result, lock, volume};

/// Opens a location for reading. Files are locked unless `unlocked`.
pub(super) fn open_place(place: &ImageLocation, unlocked: bool) -> Result<OpenPlace> {
    let file = place.file().map(|path| lock::open_to_read(path, unlocked)).transpose()?;
    let open = |path: &Path, is_written| open_named(path, is_written, unlocked);
    let address = match place {
        ImageLocation::Object(address) => address,
        ImageLocation::Nbd(address) => {
            return Ok(OpenPlace { device: Arc::new(connect(address)?), identity: None });
        }
        _ => return Ok(place.open(file, named(&open), reading::options())?),
    };
    let location = store::open(address).map_err(OpenError::from)?;
    if let Some(image) = remote::publish::find(&location)? {
        return Ok(remote::opening::open_published(image, reading::options()));
    }
    match place.open(file, named(&open), reading::options()) {
        // A volume consists of many objects, none of them with its own name.
        Err(OpenError::Fetch(FetchError::Absent { address: shown })) => {
            let volume = volume::device(Path::new(address.with_secrets()), true)?;
            let device = volume.ok_or(OpenError::Fetch(FetchError::Absent { address: shown }))?;
            Ok(OpenPlace { device, identity: None })
        }
        opened => Ok(opened?),
    }
}

/// Connects to an NBD server.
pub(super) fn connect(address: &Address) -> Result<Client> {
    let failed = |e| Error::host("connect to", Path::new(&*address.public()), e);
    Client::connect(address.with_secrets()).map_err(failed)
}
