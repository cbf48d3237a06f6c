//! Locations with structure: published images, with addresses of the form PREFIX/names/NAME, volumes, and NBD exports.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use disk::address::Address;
use remote::nbd::Client;
use remote::place::lazy::{FetchError, LazyDevice, RangeSource};
use remote::place::{ImageLocation, OpenError, OpenPlace, store};
use remote::publish::Published;

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
        return Ok(open_published(image));
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

fn open_published(image: Published) -> OpenPlace {
    let (identity, first) = (image.identity().to_owned(), touched_first(&image));
    let device = LazyDevice::new(Arc::new(image), reading::options().clone());
    device.read_ahead_in_order(first);
    OpenPlace { device: Arc::new(device), identity: Some(identity) }
}

/// Returns the ranges that a recorded start read first, with adjacent ranges merged.
fn touched_first(image: &Published) -> Vec<Range<u64>> {
    let mut first: Vec<Range<u64>> = Vec::new();
    for range in image.order() {
        match first.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => first.push(range),
        }
    }
    first
}
