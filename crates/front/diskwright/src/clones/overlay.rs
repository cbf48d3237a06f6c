//! Overlay files, which store changes of a base image.
//!
//! An overlay file is itself the name of an image: its base with the changes. The base may be an overlay too.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::overlay_file::{About, OverlayError};
use disk::{BlockDevice, FileDevice, OverlayFile};

use super::open_bases::{self, BaseKey, SharedBase};
use crate::anywhere::{Base, absolute, identity_of_file, utf_8, words};
use crate::{Error, Result, anywhere, lock};

/// Open overlay with its base.
pub(super) struct Overlay {
    pub(super) device: OverlayFile,
    pub(super) about: About,
    /// Number of overlays above each other, from this one on.
    levels: u32,
}

/// Access to the base of an overlay.
#[derive(Clone, Copy, Default)]
pub(super) struct BaseAccess<'a> {
    /// True to open files without a lock.
    pub(super) unlocked: bool,
    /// File that this process has already locked in order to replace it.
    pub(super) claimed: Option<&'a Path>,
    /// Number of overlays above it.
    pub(super) depth: u32,
}

impl BaseAccess<'_> {
    /// Greatest number of overlays above each other.
    const DEPTH_MAX: u32 = 32;

    /// Returns the access of an overlay with nothing above it.
    pub(super) fn new(unlocked: bool) -> Self {
        Self { unlocked, claimed: None, depth: 0 }
    }

    /// Returns the access to the base of the overlay `file`.
    pub(super) fn below(self, file: &Path) -> Result<Self> {
        let depth = self.depth + 1;
        self.allow(file, 1)?;
        Ok(Self { depth, ..self })
    }

    /// Checks that `levels` more overlays may lie below, beginning with `file`.
    fn allow(self, file: &Path, levels: u32) -> Result<()> {
        if self.depth + levels > Self::DEPTH_MAX {
            let problem = format!("more than {} overlays lie above each other", Self::DEPTH_MAX);
            let advice = "commit a snapshot to a new image, and clone that";
            return Err(Error::image(file, vfs::Error::unsupported(problem, advice)));
        }
        Ok(())
    }
}

/// Opens a file, an overlay or a remote image as the base of an overlay. A local file is identified by its length and
/// modification time. Overlays that are open in this process share one device for each base.
pub(super) fn open_base(word: &Path, access: BaseAccess<'_>) -> Result<Base> {
    Ok(open_levels(word, access)?.0)
}

/// Opens a base. Also returns the number of overlays in it.
fn open_levels(word: &Path, access: BaseAccess<'_>) -> Result<(Base, u32)> {
    if let Some(Base { device, identity }) = anywhere::open_base(word, access.unlocked)? {
        let shared = match lasting(word) {
            // Bases of unknown versions may differ.
            Ok(name) if !access.unlocked && !identity.is_empty() => {
                let key = BaseKey::Place(name, identity.clone());
                open_bases::add(key, SharedBase { device, levels: 0 }).device
            }
            _ => device,
        };
        return Ok((Base { device: shared, identity }, 0));
    }
    let is_claimed = access.claimed.is_some_and(|claimed| crate::is_same_file(word, claimed));
    // A device above a file that is about to be replaced is not shared.
    let is_shared = !access.unlocked && access.claimed.is_none();
    let file = lock::open_to_read(word, access.unlocked || is_claimed)?;
    let identity = identity_of_file("file", word, &file)?;
    let id = crate::host::id_of(&file).map_err(|e| Error::host("read", word, e))?;
    let key = BaseKey::File(id, identity.clone());
    let known = if is_shared { open_bases::find(&key) } else { None };
    let base = match known {
        Some(known) => known,
        None => {
            let opened = open_local(word, file, access)?;
            if is_shared { open_bases::add(key, opened) } else { opened }
        }
    };
    access.allow(word, base.levels)?;
    Ok((Base { device: base.device, identity }, base.levels))
}

/// Opens a local file as a base.
fn open_local(word: &Path, file: File, access: BaseAccess<'_>) -> Result<SharedBase> {
    if is_overlay(word) {
        // The lock on this descriptor stays until the overlay has its own.
        let Overlay { device, levels, .. } = read(word, None, access)?;
        return Ok(SharedBase { device: Arc::new(device), levels });
    }
    let device = lock::device(word, file)?;
    Ok(SharedBase { device: Arc::new(device), levels: 0 })
}

/// Returns a name of the location that is independent of the current directory.
pub(super) fn lasting(word: &Path) -> Result<String> {
    match anywhere::lasting_name(word)? {
        Some(name) => Ok(name),
        None => absolute(word).and_then(|path| utf_8(&path).map(str::to_owned)),
    }
}

/// Returns whether `file` is a regular file with the header of an overlay. Errors appear when it is opened.
pub(super) fn is_overlay(file: &Path) -> bool {
    let mut first = [0; OverlayFile::MAGIC_BYTES];
    let read =
        |mut file: File| file.read_exact(&mut first).is_ok() && OverlayFile::is_header(&first);
    // Opening a pipe could wait for ever.
    std::fs::metadata(file).is_ok_and(|metadata| metadata.is_file())
        && File::open(file).is_ok_and(read)
}

/// Reads the header of an overlay: its base, and the length of the base in bytes.
pub(super) fn header(file: &Path) -> Result<(About, u64)> {
    let storage = lock::device(file, lock::open_to_read(file, true)?)?;
    About::read(&storage).map_err(|e| told(file, e))
}

/// Opens an overlay on its original base, for reading. Returns `None` for any other file.
pub(crate) fn open_image(file: &Path, unlocked: bool) -> Result<Option<Arc<dyn BlockDevice>>> {
    if !is_overlay(file) {
        return Ok(None);
    }
    Ok(Some(Arc::new(read(file, None, BaseAccess::new(unlocked))?.device)))
}

/// Opens an overlay on its original base, for writing. Returns `None` for any other file.
pub(crate) fn open_image_to_write(file: &Path) -> Result<Option<Arc<dyn BlockDevice>>> {
    if !is_overlay(file) {
        return Ok(None);
    }
    let locked = lock::open_to_write(file)?;
    refuse_second_name(file, &locked)?;
    Ok(Some(Arc::new(on_its_base(file, locked, None, BaseAccess::default())?.device)))
}

/// Opens an overlay for reading, on its original base or on `base`.
pub(super) fn read(file: &Path, base: Option<&Path>, access: BaseAccess<'_>) -> Result<Overlay> {
    let locked = lock::open_to_read(file, access.unlocked)?;
    on_its_base(file, locked, base, access)
}

fn on_its_base(
    file: &Path,
    locked: File,
    base: Option<&Path>,
    access: BaseAccess<'_>,
) -> Result<Overlay> {
    let storage = lock::device(file, locked)?;
    let (about, _) = About::read(&storage).map_err(|e| told(file, e))?;
    let word = base.map_or_else(|| PathBuf::from(&about.base), Path::to_owned);
    if !words::is_place(&word) && !word.exists() {
        return Err(without_base(file, &word));
    }
    let (Base { device, identity }, levels) = open_levels(&word, access.below(file)?)?;
    let opened = OverlayFile::open(Arc::new(storage), device, &identity);
    Ok(Overlay { device: opened.map_err(|e| told(file, e))?, about, levels: levels + 1 })
}

/// Opens the overlay `file` of the image `word` as a writable device. A missing or empty file is initialised.
#[cfg(all(feature = "mount", unix))]
pub(crate) fn open_overlay(word: &Path, file: &Path) -> Result<Arc<dyn BlockDevice>> {
    let base = open_base(word, BaseAccess::default().below(file)?)?;
    make_if_missing(file)?;
    let locked = lock::open_to_write(file)?;
    refuse_second_name(file, &locked)?;
    let len = locked.metadata().map_err(|e| Error::host("read", file, e))?.len();
    if len > 0 {
        let storage = lock::device(file, locked)?;
        let opened = OverlayFile::open(Arc::new(storage), base.device, &base.identity);
        return Ok(Arc::new(opened.map_err(|e| told(file, e))?));
    }
    let about = About { base: lasting(word)?, identity: base.identity, longer: None };
    let made = create(&locked, file, &about, base.device).inspect_err(|_| {
        // Truncate it so that the next attempt can start again.
        let _ = locked.set_len(0);
    })?;
    Ok(Arc::new(made))
}

#[cfg(all(feature = "mount", unix))]
fn make_if_missing(file: &Path) -> Result<()> {
    match crate::host::private(File::options().write(true).create_new(true)).open(file) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(Error::host("make", file, error)),
    }
}

/// Writes a new overlay to an empty file. The header makes it valid, so it is written first.
pub(super) fn create(
    new: &File,
    name: &Path,
    about: &About,
    below: Arc<dyn BlockDevice>,
) -> Result<OverlayFile> {
    let failed = |e| Error::host("write", name, e);
    let len = about.longer.unwrap_or(0).max(below.len());
    let bytes = OverlayFile::file_bytes(len).map_err(|e| told(name, e))?;
    new.set_len(bytes).map_err(failed)?;
    let storage = new.try_clone().and_then(FileDevice::new).map_err(failed)?;
    OverlayFile::create(Arc::new(storage), below, about).map_err(|e| told(name, e))
}

/// Refuses a file with two names for writing: an interrupted snapshot leaves the clone's file under both names.
pub(super) fn refuse_second_name(file: &Path, open: &File) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let names = open.metadata().map_err(|e| Error::host("read", file, e))?.nlink();
        if names > 1 {
            return Err(Error::Usage(format!(
                "{}: the overlay has {names} names, and a snapshot must not change; remove one of \
                 them (an interrupted snapshot leaves two)",
                crate::text::shown(file)
            )));
        }
    }
    #[cfg(not(unix))]
    let _ = (file, open);
    Ok(())
}

fn without_base(file: &Path, base: &Path) -> Error {
    let problem = format!("its base image {} is missing", crate::text::shown(base));
    let advice = "move the base image back, or name its new place when you commit the overlay";
    Error::image(file, vfs::Error::unsupported(problem, advice))
}

fn told(file: &Path, error: OverlayError) -> Error {
    let advice = match error {
        OverlayError::Device(error) => return Error::host("read", file, error),
        OverlayError::OtherBase { .. } => "use the image of this overlay, or another overlay",
        _ => "use an overlay created by clone or mount --overlay, or a new file name",
    };
    let source = vfs::Error::unsupported(error.to_string(), advice);
    Error::image(file, source)
}
