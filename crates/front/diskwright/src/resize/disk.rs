//! File or block device that contains an image, and changes of its length.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use disk::{BlockDevice, FileDevice};

use crate::image::window_to_write;
use crate::partition::{self, Partition};
use crate::{Error, ImageOptions, Result, lock};

/// Open and locked file or block device.
pub(super) struct Disk {
    device: Arc<dyn BlockDevice>,
    /// Regular file, whose length can change.
    file: Option<File>,
}

impl Disk {
    /// Opens and locks the file or device. The length of a clone is that of its base.
    pub(super) fn open(path: &Path, options: &ImageOptions) -> Result<Self> {
        let disk = match crate::image::open_place_to_write(path)? {
            Some(device) => Self { device, file: None },
            None => Self::of_file(path, lock::open_to_write(path)?)?,
        };
        if options.offset > 0 && options.offset >= disk.len() {
            disk.window(path, options)?;
        }
        Ok(disk)
    }

    fn of_file(path: &Path, file: File) -> Result<Self> {
        let failed = |e| Error::host("read", path, e);
        let again = file.try_clone().map_err(failed)?;
        let is_regular = file.metadata().map_err(failed)?.is_file();
        let device = Arc::new(FileDevice::new(again).map_err(failed)?);
        Ok(Self { device, file: is_regular.then_some(file) })
    }

    pub(super) fn len(&self) -> u64 {
        self.device.len()
    }

    /// Returns the part selected by the options, together with the other devices of the image. It locks those, so only
    /// one may exist at a time.
    pub(super) fn window(
        &self,
        path: &Path,
        options: &ImageOptions,
    ) -> Result<Arc<dyn BlockDevice>> {
        window_to_write(path, self.device.clone(), options)
    }

    /// Returns the partition with a number.
    pub(super) fn partition(&self, path: &Path, number: u32) -> Result<Partition> {
        partition::find(&*self.device, number).map_err(in_table(path))
    }

    /// Extends the file and the partition entry for an image of `bytes` bytes.
    pub(super) fn extend(self, path: &Path, options: &ImageOptions, bytes: u64) -> Result<Self> {
        let Some(number) = options.partition else {
            let needed = self.len().max(options.offset.saturating_add(bytes));
            return self.set_len(path, needed);
        };
        if self.partition(path, number)?.len >= bytes {
            return Ok(self);
        }
        let needed = partition::disk_for(&*self.device, number, bytes).map_err(in_table(path))?;
        let before = self.len();
        let longer = self.set_len(path, before.max(needed))?;
        match partition::resize(&*longer.device, number, bytes) {
            Ok(()) => Ok(longer),
            Err(error) => {
                longer.set_len(path, before)?;
                Err(in_table(path)(error))
            }
        }
    }

    /// Shrinks the partition entry, or truncates the file after the image.
    pub(super) fn cut(self, path: &Path, options: &ImageOptions, bytes: u64) -> Result<Self> {
        if let Some(number) = options.partition {
            let resized = partition::resize(&*self.device, number, bytes);
            return resized.map(|()| self).map_err(in_table(path));
        }
        if self.file.is_some() { self.set_len(path, options.offset + bytes) } else { Ok(self) }
    }

    /// Restores the lengths of file and partition when the file system was not changed.
    pub(super) fn take_back(
        self,
        path: &Path,
        options: &ImageOptions,
        (disk, part): (u64, u64),
    ) -> Result<()> {
        if let Some(number) = options.partition
            && self.partition(path, number)?.len != part
        {
            partition::resize(&*self.device, number, part).map_err(in_table(path))?;
        }
        if self.file.is_some() && self.len() > disk && options.partition.is_none() {
            self.set_len(path, disk)?;
        }
        Ok(())
    }

    /// Returns the image offset from which on it reads as zeros, because the file was extended there.
    pub(super) fn zeros_from(&self, before: u64, start: u64) -> u64 {
        if self.file.is_some() { before.saturating_sub(start) } else { u64::MAX }
    }

    /// Sets the length of the file.
    fn set_len(self, path: &Path, bytes: u64) -> Result<Self> {
        if bytes == self.len() {
            return Ok(self);
        }
        let Some(file) = &self.file else {
            return Err(Error::Usage(format!(
                "the device has {} bytes, but {bytes} are needed; enlarge it first, or choose a \
                 smaller size",
                self.len()
            )));
        };
        file.set_len(bytes).map_err(|e| Error::host("change the length of", path, e))?;
        let again = file.try_clone().map_err(|e| Error::host("read", path, e))?;
        Self::of_file(path, again)
    }
}

fn in_table(path: &Path) -> impl Fn(partition::PartitionError) -> Error + '_ {
    |source| Error::Partition { image: path.to_owned(), source }
}
