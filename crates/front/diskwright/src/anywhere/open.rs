//! Opening remote images and virtual disks.

use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use remote::opening::OpenError;
use remote::place::ImageLocation;
use remote::place::disk::VirtualDisk;

use super::base::{self, Base};
use super::named::{named, open_named};
use super::published::{connect, open_place};
use crate::{Error, Result, lock, volume};

/// Opens the named location for reading. Returns `None` for a local file.
pub(crate) fn open(word: &Path, unlocked: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some(place) = ImageLocation::parse(word.as_os_str()) else { return Ok(None) };
    Ok(Some(open_place(&place, unlocked)?.device))
}

/// Opens the named location for writing. Returns `None` for a local file.
pub(crate) fn open_to_write(word: &Path) -> Result<Option<Arc<dyn BlockDevice>>> {
    match ImageLocation::parse(word.as_os_str()) {
        Some(ImageLocation::Disk(kind, path)) if kind == "qcow2" => {
            let lock = lock::open_to_write(&path)?;
            let open = |path: &Path, is_written| open_named(path, is_written, false);
            let disk = VirtualDisk::open(&kind, &path, true, Some(lock), named(&open));
            Ok(Some(Arc::new(disk.map_err(OpenError::from)?)))
        }
        Some(ImageLocation::Nbd(address)) => {
            let client = connect(&address)?;
            if client.is_read_only() {
                return Err(Error::Usage(format!("{address}: the server allows no writes")));
            }
            Ok(Some(Arc::new(client)))
        }
        Some(_) => match volume::device(word, false)? {
            None => Err(only_read(word)),
            volume => Ok(volume),
        },
        None => Ok(None),
    }
}

fn only_read(word: &Path) -> Error {
    super::words::missing(word, &std::io::ErrorKind::NotFound.into())
        .unwrap_or_else(|| Error::Usage(format!("{}: it is read-only", crate::text::shown(word))))
}

/// Opens the named location as the base of an overlay. Returns `None` for a local file.
pub(crate) fn open_base(word: &Path, unlocked: bool) -> Result<Option<Base>> {
    let Some(place) = ImageLocation::parse(word.as_os_str()) else { return Ok(None) };
    let open = open_place(&place, unlocked)?;
    // The file is already locked.
    let of_file = match place.file() {
        Some(path) => {
            let file = lock::open_to_read(path, true)?;
            base::identity_of_file("packed file", path, &file)?
        }
        None => String::new(),
    };
    Ok(Some(Base { device: open.device, identity: open.identity.unwrap_or(of_file) }))
}

/// Returns a name of the location without secrets, independent of the current directory. Returns `None` for a local
/// file.
pub(crate) fn lasting_name(word: &Path) -> Result<Option<String>> {
    let Some(place) = ImageLocation::parse(word.as_os_str()) else { return Ok(None) };
    let text = base::utf_8(word)?;
    if place.file().is_none() {
        // The query of an address may contain a temporary signature.
        return Ok(Some(disk::address::public(text).into_owned()));
    }
    let kind = text.split_once(':').filter(|_| super::words::is_place(word));
    let Some((kind, file)) = kind else { return Ok(None) };
    let file = base::absolute(Path::new(file))?;
    Ok(Some(format!("{kind}:{}", base::utf_8(&file)?)))
}
