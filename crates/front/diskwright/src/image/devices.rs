//! Other devices of an image: its log, and its realtime files. Also the keys that it needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::hint::Setting;

use disk::{BlockDevice, JoinedDevice};

use super::places;
use crate::format::Format;
use crate::{Error, Result, image, lock};

/// Other files or block devices that contain parts of an image. They are locked like the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OtherDevices {
    /// Device of the log of an XFS image, or of the journal of an ext4 image, if the image does not contain it.
    pub log: Option<PathBuf>,
    /// Device with the contents of realtime files. It is written together with the image.
    pub realtime: Option<PathBuf>,
    /// Layers that may contain the image, with their keys and other members. `None` refuses such images.
    #[cfg(feature = "layers")]
    pub layers: Option<super::ImageLayers>,
    /// Keys of encrypted files and directories (fscrypt) of an ext4 image.
    #[cfg(feature = "fscrypt")]
    pub encryption_keys: ::ext4::fscrypt::EncryptionKeys,
}

setters!(OtherDevices {
    log: impl Into<PathBuf> = Some(log.into()),
    realtime: impl Into<PathBuf> = Some(realtime.into()),
});

impl OtherDevices {
    /// Returns whether no device is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.option().is_none()
    }

    /// Takes devices that are given in `more`.
    pub fn extend(&mut self, more: &Self) {
        self.log = more.log.clone().or_else(|| self.log.take());
        self.realtime = more.realtime.clone().or_else(|| self.realtime.take());
        #[cfg(feature = "layers")]
        {
            self.layers = more.layers.clone().or_else(|| self.layers.take());
        }
        #[cfg(feature = "fscrypt")]
        if !more.encryption_keys.is_empty() {
            self.encryption_keys = more.encryption_keys.clone();
        }
    }

    /// Returns the option of the command line for the first device.
    fn option(&self) -> Option<Setting> {
        let realtime = self.realtime.as_ref().map(|_| Setting::REALTIME_DEVICE);
        self.log.as_ref().map_or(realtime, |_| Some(Setting::LOG_DEVICE))
    }

    /// Rejects devices for work that uses the image file alone.
    ///
    /// # Errors
    /// `Usage` if there are any; `why` is the reason.
    #[cfg(any(feature = "mount", feature = "serve"))]
    pub(crate) fn require_none(&self, why: &str) -> Result<()> {
        match self.option() {
            None => Ok(()),
            Some(option) => Err(Error::Usage(format!("{option}: {why}"))),
        }
    }
}

/// Purpose for which a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DevicePurpose {
    Read,
    Write,
}

/// Returns the image together with its other devices. With `unlocked`, devices to read are not locked.
///
/// # Errors
/// If one cannot be opened or is in use, or if the image has no such device.
pub(crate) fn join(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    devices: &OtherDevices,
    unlocked: bool,
    access: DevicePurpose,
) -> Result<Arc<dyn BlockDevice>> {
    let OtherDevices { log, realtime, .. } = devices;
    if devices.is_empty() {
        return Ok(device);
    }
    if realtime.is_some() && image::format_of(path, &*device)? == Some(Format::Ext4) {
        let problem =
            format!("{} is for XFS images, not ext2, ext3 or ext4", Setting::REALTIME_DEVICE);
        return Err(Error::Usage(problem));
    }
    let open = |path: &Option<PathBuf>, access| {
        path.as_deref().map(|path| open(path, unlocked, access)).transpose()
    };
    let (log, realtime) = (open(log, access)?, open(realtime, access)?);
    let joined = JoinedDevice::new(device, log, realtime);
    Ok(Arc::new(joined.map_err(|e| Error::host("read", path, e))?))
}

/// Opens and locks a device that is not an image, such as that of a journal.
///
/// # Errors
/// If it cannot be opened or is in use.
pub fn open_other_device(path: &Path, is_writable: bool) -> Result<Arc<dyn BlockDevice>> {
    open(path, false, if is_writable { DevicePurpose::Write } else { DevicePurpose::Read })
}

/// Returns the number of a block device, as `s_journal_dev` stores it; 0 for a file.
#[must_use]
pub fn device_number(path: &Path) -> u32 {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::{FileTypeExt, MetadataExt};
        let found = std::fs::metadata(path).ok();
        let found = found.filter(|found| found.file_type().is_block_device());
        found.map_or(0, |found| found.rdev() as u32)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        0
    }
}

/// Opens and locks a device, which may be at any location of an image.
pub(crate) fn open(
    path: &Path,
    unlocked: bool,
    access: DevicePurpose,
) -> Result<Arc<dyn BlockDevice>> {
    let place = match access {
        DevicePurpose::Read => places::open_place(path, unlocked)?,
        DevicePurpose::Write => places::open_place_to_write(path)?,
    };
    if let Some(device) = place {
        return Ok(device);
    }
    let file = match access {
        DevicePurpose::Read => lock::open_to_read(path, unlocked)?,
        DevicePurpose::Write => lock::open_to_write(path)?,
    };
    Ok(Arc::new(lock::device(path, file)?))
}
