//! Opening remote images and virtual disks.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use disk::BlockDevice;
use remote::place::disk::VirtualDisk;
use remote::place::{ImageLocation, OpenError};

use super::named::{named, open_named};
use super::overlay;
use super::published::{connect, open_place};
use crate::{Error, Result, lock, volume};

/// Opens the named location, or an overlay file, for reading. Returns `None` for any other local file.
pub(crate) fn open(word: &Path, unlocked: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    let Some(place) = ImageLocation::parse(word.as_os_str()) else {
        return overlay::open_image(word, unlocked);
    };
    Ok(Some(open_place(&place, unlocked)?.device))
}

/// Opens the named location, or an overlay file, for writing. Returns `None` for any other local file.
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
        None => overlay::open_image_to_write(word),
    }
}

fn only_read(word: &Path) -> Error {
    super::words::missing(word, &std::io::ErrorKind::NotFound.into())
        .unwrap_or_else(|| Error::Usage(format!("{}: it is read-only", crate::text::shown(word))))
}

/// Base of an overlay: its device and identity.
pub(super) struct Base {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) identity: String,
}

/// Access to the base of an overlay.
#[derive(Clone, Copy, Default)]
pub(super) struct BaseAccess {
    /// Whether files are not locked.
    pub(super) unlocked: bool,
    /// Number of overlays above.
    depth: u32,
}

impl BaseAccess {
    /// Greatest number of overlays above each other.
    const DEPTH_MAX: u32 = 32;

    /// Returns the access of an overlay with nothing above it.
    pub(super) fn new(unlocked: bool) -> Self {
        Self { unlocked, depth: 0 }
    }

    /// Returns the access to what lies below the overlay `file`.
    pub(super) fn below(self, file: &Path) -> Result<Self> {
        let depth = self.depth + 1;
        if depth > Self::DEPTH_MAX {
            let problem = format!("more than {} overlays lie above each other", Self::DEPTH_MAX);
            let advice = "commit a snapshot to a new image, and clone that";
            return Err(Error::image(file, vfs::Error::unsupported(problem, advice)));
        }
        Ok(Self { depth, ..self })
    }
}

/// Opens a file, an overlay or a remote image as the base of an overlay. A local file is identified by its length and
/// modification time.
pub(super) fn open_base(word: &Path, access: BaseAccess) -> Result<Base> {
    let Some(place) = ImageLocation::parse(word.as_os_str()) else {
        let file = lock::open_to_read(word, access.unlocked)?;
        let identity = identity_of_file("file", word, &file)?;
        if overlay::is_overlay(word) {
            // The lock on this descriptor stays until the overlay has its own.
            let device = overlay::read(word, None, access)?.device;
            return Ok(Base { device: Arc::new(device), identity });
        }
        let device = lock::device(word, file)?;
        return Ok(Base { device: Arc::new(device), identity });
    };
    let open = open_place(&place, access.unlocked)?;
    // The file is already locked.
    let of_file = match place.file() {
        Some(path) => {
            let file = lock::open_to_read(path, true)?;
            identity_of_file("packed file", path, &file)?
        }
        None => String::new(),
    };
    Ok(Base { device: open.device, identity: open.identity.unwrap_or(of_file) })
}

pub(super) fn identity_of_file(kind: &str, path: &Path, file: &File) -> Result<String> {
    let failed = |e| Error::host("read", path, e);
    let metadata = file.metadata().map_err(failed)?;
    let changed = metadata.modified().map_err(failed)?;
    let changed = changed.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    Ok(format!("{kind} of {} bytes, changed at {changed} ns", metadata.len()))
}
