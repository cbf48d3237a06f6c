//! Opening images for mounting.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use vfs::hint::Setting;

use crate::image::UNNAMED;
#[cfg(target_os = "linux")]
use crate::lock;
use crate::{Image, ImageOptions, Result, host};

impl ImageOptions {
    /// Opens an image for a mount. It is opened for reading without [`Self::write`], with [`Self::norecovery`], if it is
    /// write-protected (a block device, or a file on a read-only file system), or if a feature prevents changes
    /// ([`Self::read_only_because`]). [`Image::remarks`] reports the last two reasons. Missing write permission of this
    /// user does not count as write-protected.
    ///
    /// # Errors
    /// Same as [`Self::open`].
    pub fn open_to_mount(&self, path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        let to_read = self.clone().write(false);
        let is_read = !self.write || self.norecovery;
        #[cfg(feature = "anywhere")]
        if let Some(device) = crate::volume::device(path, is_read)? {
            let options = if is_read { &to_read } else { self };
            return options.open_named(path, device);
        }
        if is_read {
            return to_read.open(path);
        }
        let Some(reason) = self.reason_to_read(path) else { return self.open_claimed(path) };
        let mut image = to_read.open(path)?;
        image.remarks.insert(0, format!("mounted read-only: {reason}"));
        Ok(image)
    }

    /// Returns the reason to open the image for reading only.
    fn reason_to_read(&self, path: &Path) -> Option<String> {
        if is_only_read(path) {
            // Remote locations that are read-only are not contacted for this.
            return Some(format!(
                "remote images are read-only; use {:#} to store changes in a file",
                Setting::OVERLAY
            ));
        }
        // On an error here, opening the image reports it better.
        if let Some(feature) = self.read_only_because(path).unwrap_or_default() {
            return Some(feature);
        }
        let kind = if is_block_device(path) { "the device" } else { "the file" };
        is_write_protected(path).then(|| format!("{kind} is write-protected"))
    }

    /// Opens an image for writing.
    #[cfg(not(target_os = "linux"))]
    fn open_claimed(&self, path: &Path) -> Result<Image> {
        self.open(path)
    }

    /// Opens an image for writing. If the kernel can mount it as a block device, the claim of the device is separate.
    #[cfg(target_os = "linux")]
    fn open_claimed(&self, path: &Path) -> Result<Image> {
        if let Some(device) = crate::image::open_place_to_write(path)? {
            return self.open_named(path, device);
        }
        let (file, claim) = lock::open_to_mount(path)?;
        let mut image = self.open_file(path, &file)?;
        image.mounting.claim = claim;
        Ok(image)
    }

    /// Opens an image for writing with an overlay. Writes go to the file `overlay`, which is created if missing; the
    /// image below is unchanged. The log is replayed into the overlay too.
    ///
    /// # Errors
    /// Same as [`Self::open`], and if the overlay belongs to another image.
    pub fn open_over(&self, path: &Path, overlay: &Path) -> Result<Image> {
        self.devices.require_none("an overlay contains the changes of one device only")?;
        let device = crate::clones::open_overlay(path, overlay)?;
        let mut image = self.clone().write(true).open_named(path, device)?;
        image.mounting.name = Some(name_of(overlay));
        Ok(image)
    }

    /// Opens an image for reading. [`Image::close`] and the end of a mount write the ranges that were read to `record`,
    /// as an order for [`crate::publish`].
    ///
    /// # Errors
    /// Same as [`Self::open`], and if the record cannot be created.
    #[cfg(all(feature = "anywhere", target_os = "linux"))]
    pub fn open_recorded(&self, path: &Path, record: &Path) -> Result<Image> {
        let device = crate::image::open_device(path, self)?;
        let (device, recording) = crate::start_record::Recording::start(device, record)?;
        // The device is already the part selected by the options.
        let whole = Self { write: false, offset: 0, partition: None, ..self.clone() };
        let mut image = whole.open_named(path, device)?;
        image.mounting.write_record = Some(Box::new(|| recording.finish()));
        Ok(image)
    }

    /// Recovers an image in place and opens it for reading, as kernels do for read-only mounts. A clean image is not
    /// written. If recovery in place is not possible, it is performed in memory, and [`Image::remarks`] contains the
    /// reason.
    ///
    /// # Errors
    /// Same as [`Self::open`].
    pub fn open_recovered(&self, path: &Path) -> Result<Image> {
        let is_clean = self.clone().norecovery(true).info(path)?.is_clean();
        let recovered = if is_clean { Ok(()) } else { self.recover(path).map(drop) };
        let mut image = self.clone().write(false).open_to_mount(path)?;
        let failed = recovered.err().map(|error| format!("mounted without recovery: {error}"));
        image.remarks.extend(failed);
        Ok(image)
    }
}

/// Takes the mount source of an image that is about to be mounted.
pub(super) fn take_name(image: &mut Image) -> OsString {
    image.mounting.name.take().unwrap_or_else(|| name_of(image.path()))
}

/// Returns the mount source: the absolute path of the image file, or the address of a remote image without secrets.
fn name_of(path: &Path) -> OsString {
    if path == Path::new(UNNAMED) {
        return "diskwright".into();
    }
    if let Some(file) = crate::anywhere::words::file_of(path) {
        return std::fs::canonicalize(file).unwrap_or_else(|_| path.to_owned()).into();
    }
    crate::text::public(path).into()
}

pub(super) fn is_place(path: &Path) -> bool {
    crate::anywhere::words::is_place(path) && !path.exists()
}

/// Returns whether the location is remote and cannot be changed.
fn is_only_read(path: &Path) -> bool {
    #[cfg(feature = "anywhere")]
    return match remote::place::ImageLocation::parse(path.as_os_str()) {
        Some(remote::place::ImageLocation::Disk(kind, _)) => kind != "qcow2",
        // Opening it reports the server's answer.
        Some(remote::place::ImageLocation::Nbd(_)) => false,
        place => place.is_some(),
    };
    #[cfg(not(feature = "anywhere"))]
    return is_place(path);
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Returns whether the image is write-protected for every user: a read-only device, or a file on a read-only file
/// system. mount(8) then mounts read-only with a warning.
fn is_write_protected(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            let opened = fs::OpenOptions::new().write(true).open(path);
            opened.is_err_and(|error| error.kind() == io::ErrorKind::ReadOnlyFilesystem)
        }
        Ok(metadata) => host::is_protected_device(&metadata),
        Err(_) => false,
    }
}
