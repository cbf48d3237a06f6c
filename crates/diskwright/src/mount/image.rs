//! Opening an image to mount it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use vfs::FileSystem;

use crate::edit::OpenToEdit;
use crate::{Image, OpenImage, Result, host};

/// An image that is open to be mounted.
pub struct OpenToMount {
    access: Access,
    name: OsString,
    warnings: Vec<String>,
}

enum Access {
    Read(Image),
    Write(OpenToEdit),
}

impl OpenToMount {
    /// Opens an image: for reading only if that is asked for, if it is read as it lies
    /// ([`OpenImage::norecovery`]), if it is write-protected (a block device that is, or a file where nothing can
    /// be written), or if a feature of its makes that it cannot be changed ([`Image::read_only_because`]). The
    /// last two [`Self::warnings`] say. A file that this user may not write is not write-protected.
    ///
    /// # Errors
    /// As [`Image::edit`], or as [`Image::open`] if it is for reading only.
    pub fn open(path: &Path, options: &OpenImage, read_only: bool) -> Result<Self> {
        let name = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).into();
        if read_only || options.norecovery {
            let image = Image::open(path, options)?;
            let warnings = image.remarks().to_vec();
            return Ok(Self { access: Access::Read(image), name, warnings });
        }
        // Opening it reports better what else is wrong.
        let reason = match Image::read_only_because(path, options).unwrap_or_default() {
            None if is_write_protected(path) => {
                let kind = if is_block_device(path) { "the device" } else { "the file" };
                format!("{kind} is write-protected")
            }
            None => {
                let access = Access::Write(Image::edit(path, options)?);
                return Ok(Self { access, name, warnings: Vec::new() });
            }
            Some(reason) => reason,
        };
        let image = Image::open(path, options)?;
        let mut warnings = vec![format!("mounted for reading only: {reason}")];
        warnings.extend_from_slice(image.remarks());
        Ok(Self { access: Access::Read(image), name, warnings })
    }

    /// Opens an image for reading only, after recovering it where it lies, as kernels do before they mount one
    /// for reading. One that is clean is not written. Where it cannot be recovered there, it is read as if it
    /// had been, as by [`Self::open`], and [`Self::warnings`] say why.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn open_recovered(path: &Path, options: &OpenImage) -> Result<Self> {
        let as_it_lies = OpenImage { norecovery: true, ..*options };
        let is_clean = Image::open_rootless(path, &as_it_lies)?.is_clean();
        let recovered = if is_clean { Ok(()) } else { Image::recover(path, options).map(drop) };
        let mut open = Self::open(path, options, true)?;
        let failed = recovered.err().map(|error| format!("not recovered, but shown so: {error}"));
        open.warnings.extend(failed);
        Ok(open)
    }

    /// Whether nothing can be changed.
    pub fn is_read_only(&self) -> bool {
        matches!(self.access, Access::Read(_))
    }

    /// Remarks for the user who asked for the mount.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What the mount is called in `/proc/mounts`: the path of the image, if it is known.
    pub(super) fn name(&self) -> &OsString {
        &self.name
    }

    pub(super) fn file_system(&self) -> &dyn FileSystem {
        match &self.access {
            Access::Read(image) => image.file_system(),
            Access::Write(open) => open.file_system(),
        }
    }

    /// Makes all changes durable and leaves the image clean.
    pub(super) fn close(self) -> Result<()> {
        match self.access {
            Access::Read(_) => Ok(()),
            Access::Write(open) => open.close(),
        }
    }
}

fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_block_device())
}

/// Whether nobody at all can write it: mount(8) then mounts for reading, with a warning. Of a device the
/// kernel says so; a file is on a file system that is mounted for reading.
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

/// For reading only. The path is not known.
impl From<Image> for OpenToMount {
    fn from(image: Image) -> Self {
        Self { access: Access::Read(image), name: "diskwright".into(), warnings: Vec::new() }
    }
}

impl From<OpenToEdit> for OpenToMount {
    fn from(open: OpenToEdit) -> Self {
        let name = open.path();
        let name = std::fs::canonicalize(name).unwrap_or_else(|_| name.to_owned()).into();
        Self { access: Access::Write(open), name, warnings: Vec::new() }
    }
}
