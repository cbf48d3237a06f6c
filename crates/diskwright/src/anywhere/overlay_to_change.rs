//! Overlays that are changed, and made where there are none: below mounts.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use blockdev::overlay_file::About;
use blockdev::{BlockDevice, FileDevice, OverlayFile};

use super::open::{Base, open_base};
use super::overlay::told;
use crate::{Error, Result, lock};

/// Opens the overlay `file` of what `word` names, as a device to change. A file that is not there, or is empty, becomes
/// a new one.
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

/// The header makes it an overlay: before it is there, nothing else is.
fn create(locked: &File, file: &Path, word: &Path, base: Base) -> Result<OverlayFile> {
    let failed = |e| Error::host("write", file, e);
    let bytes = OverlayFile::file_bytes(base.device.len()).map_err(|e| told(file, e))?;
    let about = About { base: lasting(word)?, identity: base.identity };
    locked.set_len(bytes).map_err(failed)?;
    let storage = FileDevice::new(locked.try_clone().map_err(failed)?).map_err(failed)?;
    let made = OverlayFile::create(Arc::new(storage), base.device, &about);
    made.map_err(|error| {
        // Nothing is in it: the next one may begin again.
        let _ = locked.set_len(0);
        told(file, error)
    })
}

fn existing(locked: File, file: &Path, base: Base) -> Result<OverlayFile> {
    let storage = FileDevice::new(locked).map_err(|e| Error::host("read", file, e))?;
    OverlayFile::open(Arc::new(storage), base.device, &base.identity).map_err(|e| told(file, e))
}

/// A word that names the same from every directory.
fn lasting(word: &Path) -> Result<String> {
    let not_text = || Error::Usage(format!("{}: its name is no text", crate::text::shown(word)));
    let text = word.to_str().ok_or_else(not_text)?;
    let kind = text.split_once(':').map(|(kind, file)| (kind, Path::new(file)));
    let absolute =
        |path: &Path| std::path::absolute(path).map_err(|e| Error::host("find", path, e));
    match (place::Place::parse(word.as_os_str()), kind) {
        // An address may have a signature in its query, which is for this time only.
        (Some(place), _) if place.file().is_none() => Ok(address::public(text).into_owned()),
        (Some(_), Some((kind, file))) if super::words::is_place(word) => {
            Ok(format!("{kind}:{}", absolute(file)?.display()))
        }
        _ => absolute(word)?.to_str().map(str::to_owned).ok_or_else(not_text),
    }
}
