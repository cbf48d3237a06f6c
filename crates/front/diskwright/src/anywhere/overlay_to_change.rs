//! Overlay files below mounts: creating and changing.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::overlay_file::About;
use disk::{BlockDevice, FileDevice, OverlayFile};

use super::open::{Base, open_base};
use super::overlay::told;
use crate::{Error, Result, lock};

/// Opens the overlay `file` of the image `word` as a writable device. A missing or empty file is initialised.
pub(crate) fn open_overlay(word: &Path, file: &Path) -> Result<Arc<dyn BlockDevice>> {
    let base = open_base(word)?;
    make_if_missing(file)?;
    let locked = lock::open_to_write(file)?;
    let len = locked.metadata().map_err(|e| Error::host("read", file, e))?.len();
    let overlay =
        if len == 0 { create(&locked, file, word, base)? } else { existing(locked, file, base)? };
    Ok(Arc::new(overlay))
}

fn make_if_missing(file: &Path) -> Result<()> {
    match crate::host::private(File::options().write(true).create_new(true)).open(file) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::host("make", file, error)),
    }
}

/// Writes a new overlay. The header makes it valid, so it is written first.
fn create(locked: &File, file: &Path, word: &Path, base: Base) -> Result<OverlayFile> {
    let failed = |e| Error::host("write", file, e);
    let bytes = OverlayFile::file_bytes(base.device.len()).map_err(|e| told(file, e))?;
    let about = About { base: lasting(word)?, identity: base.identity };
    locked.set_len(bytes).map_err(failed)?;
    let storage = FileDevice::new(locked.try_clone().map_err(failed)?).map_err(failed)?;
    let made = OverlayFile::create(Arc::new(storage), base.device, &about);
    made.map_err(|error| {
        // The file is still empty; truncate it so that the next attempt can start again.
        let _ = locked.set_len(0);
        told(file, error)
    })
}

fn existing(locked: File, file: &Path, base: Base) -> Result<OverlayFile> {
    let storage = lock::device(file, locked)?;
    OverlayFile::open(Arc::new(storage), base.device, &base.identity).map_err(|e| told(file, e))
}

/// Returns a name of the location that is independent of the current directory.
fn lasting(word: &Path) -> Result<String> {
    let not_text = || Error::Usage(format!("{}: its name is not UTF-8", crate::text::shown(word)));
    let text = word.to_str().ok_or_else(not_text)?;
    let kind = text.split_once(':').map(|(kind, file)| (kind, Path::new(file)));
    let absolute =
        |path: &Path| std::path::absolute(path).map_err(|e| Error::host("find", path, e));
    match (remote::place::ImageLocation::parse(word.as_os_str()), kind) {
        // The query of an address may contain a temporary signature.
        (Some(place), _) if place.file().is_none() => Ok(disk::address::public(text).into_owned()),
        (Some(_), Some((kind, file))) if super::words::is_place(word) => {
            Ok(format!("{kind}:{}", absolute(file)?.display()))
        }
        _ => absolute(word)?.to_str().map(str::to_owned).ok_or_else(not_text),
    }
}
