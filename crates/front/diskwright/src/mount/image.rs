//! Opening images for mounting.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use vfs::FileSystem;

use super::served::Served;
use crate::edit::OpenToEdit;
use crate::lock::DeviceClaim;
use crate::{Image, OpenImage, Result, host};

/// Image opened for mounting.
pub struct OpenToMount {
    access: Access,
    name: OsString,
    is_place: bool,
    warnings: Vec<String>,
    /// Entry for writable images that are not local files. Declared after the access, so that it is dropped after the
    /// image is closed.
    served: Option<Served>,
    /// Claim of a block device that the kernel can mount.
    claim: Option<DeviceClaim>,
}

enum Access {
    Read(Image),
    #[cfg(feature = "anywhere")]
    Recorded(Image, crate::publish::Recording),
    Write(OpenToEdit),
}

impl OpenToMount {
    /// Opens an image. It is opened read-only on request, without recovery ([`OpenImage::norecovery`]), if it is
    /// write-protected (a block device, or a file on a read-only file system), or if a feature prevents changes
    /// ([`Image::read_only_because`]). [`Self::warnings`] reports the last two reasons. Missing write permission of
    /// this user does not count as write-protected.
    ///
    /// # Errors
    /// Same as [`Image::edit`], or as [`Image::open`] if opened read-only.
    pub fn open(path: &Path, options: &OpenImage, read_only: bool) -> Result<Self> {
        #[cfg(feature = "anywhere")]
        if let Some(open) = Self::open_volume(path, options, read_only)? {
            return Ok(open);
        }
        let (name, is_place) = (name_of(path), is_place(path));
        if read_only || options.norecovery {
            let image = Image::open(path, options)?;
            let warnings = image.remarks().to_vec();
            return Ok(Self::to_read(image, name, is_place, warnings));
        }
        // On an error here, opening the image reports it better. Remote locations that are read-only are not contacted
        // for this.
        let because = || Image::read_only_because(path, options).unwrap_or_default();
        let is_only_read = is_only_read(path);
        let reason = match if is_only_read { None } else { because() } {
            None if is_only_read => {
                "remote images are read-only; use --overlay FILE to store changes in a file".into()
            }
            None if is_write_protected(path) => {
                let kind = if is_block_device(path) { "the device" } else { "the file" };
                format!("{kind} is write-protected")
            }
            None => {
                let (open, claim) = Image::edit_to_mount(path, options)?;
                let access = Access::Write(open);
                let is_far = is_place && crate::anywhere::words::file_of(path).is_none();
                let served = if is_far { Served::begin(&name) } else { None };
                let warnings = Vec::new();
                return Ok(Self { access, name, is_place, warnings, served, claim });
            }
            Some(reason) => reason,
        };
        let image = Image::open(path, options)?;
        let mut warnings = vec![format!("mounted read-only: {reason}")];
        warnings.extend_from_slice(image.remarks());
        Ok(Self::to_read(image, name, is_place, warnings))
    }

    fn to_read(image: Image, name: OsString, is_place: bool, warnings: Vec<String>) -> Self {
        Self { access: Access::Read(image), name, is_place, warnings, served: None, claim: None }
    }

    /// Opens an image for writing with an overlay. Writes go to the file `overlay`, which is created if missing; the
    /// image below is unchanged. The log is replayed into the overlay too.
    ///
    /// # Errors
    /// Same as [`Image::edit`], and if the overlay belongs to another image.
    #[cfg(feature = "anywhere")]
    pub fn open_over(path: &Path, options: &OpenImage, overlay: &Path) -> Result<Self> {
        options.devices.require_none("an overlay contains the changes of one device only")?;
        let device = crate::anywhere::open_overlay(path, overlay)?;
        let access = Access::Write(OpenToEdit::on_device(path, device, options)?);
        let (name, is_place) = (name_of(overlay), is_place(path));
        Ok(Self { access, name, is_place, warnings: Vec::new(), served: None, claim: None })
    }

    /// Opens an image read-only. The ranges read are written to `record` at the end, as an order for
    /// [`crate::publish`].
    ///
    /// # Errors
    /// Same as [`Image::open`], and if the record cannot be created.
    #[cfg(feature = "anywhere")]
    pub fn open_recorded(path: &Path, options: &OpenImage, record: &Path) -> Result<Self> {
        let device = crate::image::open_device(path, options)?;
        let (device, recording) = crate::publish::Recording::start(device, record)?;
        // The device is already the part selected by the options.
        let whole = OpenImage { offset: 0, partition: None, ..options.clone() };
        let image = Image::open_device(path, device, &whole)?;
        let warnings = image.remarks().to_vec();
        let (name, is_place) = (name_of(path), is_place(path));
        Ok(Self {
            access: Access::Recorded(image, recording),
            name,
            is_place,
            warnings,
            served: None,
            claim: None,
        })
    }

    /// Opens `path` if it is a volume in a bucket.
    #[cfg(feature = "anywhere")]
    fn open_volume(path: &Path, options: &OpenImage, read_only: bool) -> Result<Option<Self>> {
        let read_only = read_only || options.norecovery;
        let Some(device) = crate::volume::device(path, read_only)? else { return Ok(None) };
        let (access, warnings) = if read_only {
            let image = Image::open_device(path, device, options)?;
            let warnings = image.remarks().to_vec();
            (Access::Read(image), warnings)
        } else {
            (Access::Write(OpenToEdit::on_device(path, device, options)?), Vec::new())
        };
        let name = name_of(path);
        let served = if read_only { None } else { Served::begin(&name) };
        Ok(Some(Self { access, name, is_place: true, warnings, served, claim: None }))
    }

    /// Recovers an image in place and opens it read-only, as kernels do for read-only mounts. A clean image is not
    /// written. If recovery in place is not possible, it is performed in memory as in [`Self::open`], and
    /// [`Self::warnings`] contains the reason.
    ///
    /// # Errors
    /// Same as [`Image::open`].
    pub fn open_recovered(path: &Path, options: &OpenImage) -> Result<Self> {
        let as_it_lies = OpenImage { norecovery: true, ..options.clone() };
        let is_clean = Image::open_rootless(path, &as_it_lies)?.is_clean();
        let recovered = if is_clean { Ok(()) } else { Image::recover(path, options).map(drop) };
        let mut open = Self::open(path, options, true)?;
        let failed = recovered.err().map(|error| format!("mounted without recovery: {error}"));
        open.warnings.extend(failed);
        Ok(open)
    }

    /// Returns whether the image is read-only.
    pub fn is_read_only(&self) -> bool {
        !matches!(self.access, Access::Write(_))
    }

    /// Returns whether the image is remote, so that requests may wait for a server.
    pub(super) fn is_place(&self) -> bool {
        self.is_place
    }

    /// Returns remarks for the user.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the source name in `/proc/mounts`: the path of the image, if known.
    pub(super) fn name(&self) -> &OsString {
        &self.name
    }

    pub(super) fn file_system(&self) -> &dyn FileSystem {
        match &self.access {
            Access::Read(image) => image.file_system(),
            #[cfg(feature = "anywhere")]
            Access::Recorded(image, _) => image.file_system(),
            Access::Write(open) => open.file_system(),
        }
    }

    /// Takes the claim of a block device that the kernel can mount.
    pub(super) fn take_claim(&mut self) -> Option<DeviceClaim> {
        self.claim.take()
    }

    /// Claims the device again after the kernel did not mount it.
    ///
    /// # Errors
    /// If another program has claimed it.
    pub(super) fn claim_again(&mut self) -> Result<()> {
        self.claim = Some(DeviceClaim::new(Path::new(&self.name))?);
        Ok(())
    }

    /// Makes all changes durable and marks the image clean.
    pub(super) fn close(self) -> Result<()> {
        let closed = match self.access {
            Access::Read(_) => Ok(()),
            #[cfg(feature = "anywhere")]
            Access::Recorded(_, recording) => recording.finish(),
            Access::Write(open) => open.close(),
        };
        // Waiters must find the image closed.
        drop(self.served);
        closed
    }
}

/// Returns the mount source: the absolute path of the image file, or the address of a remote image without secrets.
fn name_of(path: &Path) -> OsString {
    if let Some(file) = crate::anywhere::words::file_of(path) {
        return std::fs::canonicalize(file).unwrap_or_else(|_| path.to_owned()).into();
    }
    crate::text::public(path).into()
}

fn is_place(path: &Path) -> bool {
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

/// Opens read-only without a known path.
impl From<Image> for OpenToMount {
    fn from(image: Image) -> Self {
        let (access, name) = (Access::Read(image), "diskwright".into());
        Self { access, name, is_place: false, warnings: Vec::new(), served: None, claim: None }
    }
}

impl From<OpenToEdit> for OpenToMount {
    fn from(open: OpenToEdit) -> Self {
        let name = open.path();
        let name = std::fs::canonicalize(name).unwrap_or_else(|_| name.to_owned()).into();
        Self {
            access: Access::Write(open),
            name,
            is_place: false,
            warnings: Vec::new(),
            served: None,
            claim: None,
        }
    }
}
