//! Opening images of any format.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use vfs::hint::{Advice, Hint};

use disk::{BlockDevice, RescuedDevice};
use vfs::Error as FsError;

use super::cache_share::CacheShare;
use super::devices::{self, DevicePurpose};
use super::part::part;
use super::places;
use super::shared::Shared;
use super::{Image, ImageInfo, ImageOptions};
use crate::dispatch::{self, OpenFs};
use crate::format::Format;
use crate::partition::{self, Partition, Signature};
use crate::recovery::RecoverReport;
use crate::{Error, Result, lock};

/// Name in errors for an image on a device without a name.
pub(crate) const UNNAMED: &str = "the image";

impl Image {
    /// Opens an image file for reading. Its journal or log is replayed in memory.
    ///
    /// # Errors
    /// Same as [`ImageOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        ImageOptions::new().open(path)
    }

    /// Opens an image file for writing. Its journal or log is replayed first.
    ///
    /// # Errors
    /// Same as [`ImageOptions::open`].
    pub fn open_writable(path: impl AsRef<Path>) -> Result<Self> {
        ImageOptions::new().write(true).open(path)
    }

    /// Returns new [`ImageOptions`].
    pub fn options() -> ImageOptions {
        ImageOptions::new()
    }

    /// Checks that the image has a root directory. Without one it is damaged.
    fn with_root(self) -> Result<Self> {
        let at = |source| self.shared.error(source);
        self.shared.whole(|fs| vfs::path::check_root(fs).map_err(at))?;
        Ok(self)
    }
}

impl ImageOptions {
    /// Opens an image in a host file or on a block device. The image is locked against other programs. The lock is
    /// shared with other readers if it is opened for reading.
    ///
    /// # Errors
    /// If another program uses the image, it cannot be read or written, or it is not a usable image. The error names
    /// the detected contents and gives advice. Nothing has been written then.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image> {
        self.check()?;
        let path = path.as_ref();
        if !self.write {
            return self.open_rootless(path)?.with_root();
        }
        match places::open_place_to_write(path)? {
            Some(device) => self.open_named(path, device),
            None => self.open_file(path, &lock::open_to_write(path)?),
        }
    }

    /// Opens an image for reading even if it has no root directory. This suffices for [`Image::info`].
    ///
    /// # Errors
    /// Same as [`Self::open`], except for a missing root directory.
    pub fn open_rootless(&self, path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        self.read_window(path, open_device(path, self)?)
    }

    /// Same as [`Self::open_rootless`]. Also returns the device that the image was opened on.
    #[cfg(feature = "check")]
    pub(crate) fn open_with_device(&self, path: &Path) -> Result<(Image, Arc<dyn BlockDevice>)> {
        let device = open_device(path, self)?;
        Ok((self.read_window(path, Arc::clone(&device))?, device))
    }

    /// Opens an image for reading on a device that [`Self::open_with_device`] returned.
    #[cfg(feature = "build")]
    pub(crate) fn open_again(&self, path: &Path, device: Arc<dyn BlockDevice>) -> Result<Image> {
        self.read_window(path, device)
    }

    /// Same as [`Self::open_rootless`]. Also returns the offset of the image in its file, and the size of the file, both
    /// in bytes.
    #[cfg(feature = "build")]
    pub(crate) fn open_in_file(&self, path: &Path) -> Result<(Image, u64, u64)> {
        let file = open_whole(path, self)?;
        let device = window(path, Arc::clone(&file), self)?;
        if self.has_layers() {
            // Bytes of a layer are not those of the file.
            let bytes = device.len();
            return Ok((self.read_window(path, device)?, 0, bytes));
        }
        let start = super::part::range(path, &*file, self)?.0;
        let file_bytes = file.len();
        let image = self.read_window(path, device)?;
        Ok((image, start, file_bytes))
    }

    /// Reads the properties of an image, like [`Image::info`].
    ///
    /// # Errors
    /// Same as [`Self::open_rootless`].
    pub fn info(&self, path: impl AsRef<Path>) -> Result<ImageInfo> {
        self.open_rootless(path)?.info()
    }

    /// Same as [`Self::info`], for an image on any device.
    #[cfg(feature = "build")]
    pub(crate) fn info_of_device(
        &self,
        name: &Path,
        device: Arc<dyn BlockDevice>,
    ) -> Result<ImageInfo> {
        self.read_window(name, device)?.info()
    }

    /// Opens an image on any device. No other program may change the device while the image is open.
    ///
    /// # Errors
    /// Same as [`Self::open`].
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Image> {
        self.check()?;
        self.open_named(Path::new(UNNAMED), device)
    }

    fn check(&self) -> Result<()> {
        if self.write && self.norecovery {
            let problem = "norecovery is read-only; leave it out to change the image";
            return Err(Error::Usage(problem.into()));
        }
        Ok(())
    }

    /// Same as [`Self::open_device`]. Errors call the image `name`.
    pub(crate) fn open_named(&self, name: &Path, device: Arc<dyn BlockDevice>) -> Result<Image> {
        if !self.write {
            return self.read_window(name, window(name, device, self)?)?.with_root();
        }
        let device = window_to_write(name, device, self)?;
        let format = probe(name, &device, self)?;
        let (options, cache) = self.with_cache();
        let opened = dispatch::open_writable(format, device, &options, name);
        let fs = opened.map_err(|source| Error::image(name, source))?;
        Ok(self.image(fs, name, None, cache))
    }

    /// Opens an image for writing in a file that is open and locked.
    pub(crate) fn open_file(&self, path: &Path, file: &File) -> Result<Image> {
        let open = || {
            let again = file.try_clone().map_err(|e| Error::host("read", path, e))?;
            self.open_named(path, Arc::new(lock::device(path, again)?))
        };
        match open() {
            // The error may belong to an earlier writer: the kernel reports write-back errors once. Only recovery has
            // run so far, which can be interrupted and repeated.
            Err(Error::Image { source: vfs::Error::Device(_), .. })
                if lock::forget_earlier_error(file).is_ok() =>
            {
                open()
            }
            opened => opened,
        }
    }

    /// Opens an image as the source of a copy. `is_locked` is true if this process has locked the file in order to
    /// replace it.
    ///
    /// # Errors
    /// Same as [`Self::open`], and if the kernel has the image attached for writing.
    pub(crate) fn open_as_source(&self, path: &Path, is_locked: bool) -> Result<Image> {
        let device = match places::open_place(path, is_locked)? {
            Some(device) => device,
            None => {
                let file = lock::open_to_read(path, is_locked)?;
                lock::refuse_attached(path, &file)?;
                Arc::new(lock::device(path, file)?)
            }
        };
        self.open_named(path, device)
    }

    /// Opens the result of a repair in memory for reading. If recovery fails, opens it without recovery.
    pub(crate) fn open_repaired(
        path: &Path,
        format: Format,
        device: Arc<dyn BlockDevice>,
    ) -> vfs::Result<Image> {
        let options = Self::new();
        options.read_format(path, format, Arc::clone(&device)).or_else(|error| {
            let as_it_lies = options.norecovery(true);
            as_it_lies.read_format(path, format, device).map_err(|_| error)
        })
    }

    fn read_window(&self, path: &Path, device: Arc<dyn BlockDevice>) -> Result<Image> {
        let format = probe(path, &device, self)?;
        self.read_format(path, format, device).map_err(|source| Error::image(path, source))
    }

    /// Opens an image of a known format for reading.
    fn read_format(
        &self,
        path: &Path,
        format: Format,
        device: Arc<dyn BlockDevice>,
    ) -> vfs::Result<Image> {
        let (options, cache) = self.with_cache();
        let fs = dispatch::open(format, Arc::clone(&device), &options)?;
        // Read the log state from the device: `fs` has replayed the log in memory only.
        let info = fs.info(Some(&*device))?;
        Ok(self.image(fs, path, Some(info), cache))
    }

    /// Returns options with a size of the cache. Without a requested size, it depends on the other open images.
    fn with_cache(&self) -> (Self, Option<CacheShare>) {
        let share = self.cache_bytes.is_none().then(CacheShare::claim);
        let cache_bytes = self.cache_bytes.or(share.as_ref().map(CacheShare::bytes));
        (Self { cache_bytes, ..self.clone() }, share)
    }

    /// Wraps an open file system. `info` has its properties if it is open for reading.
    fn image(
        &self,
        fs: Arc<dyn OpenFs>,
        path: &Path,
        info: Option<ImageInfo>,
        cache: Option<CacheShare>,
    ) -> Image {
        Image {
            shared: Shared::new(&fs, path, (info.is_none(), self.owner), cache),
            remarks: fs.remarks().to_vec(),
            recovery: fs.recovery(),
            info,
            #[cfg(all(feature = "mount", unix))]
            mounting: Default::default(),
        }
    }

    /// Returns the feature that makes the image read-only, or `None`. The image may still be damaged or in use, which
    /// opening it for writing reports.
    ///
    /// # Errors
    /// If the image cannot be read or has no known format.
    pub fn read_only_because(&self, path: impl AsRef<Path>) -> Result<Option<String>> {
        let path = path.as_ref();
        let device = open_device(path, &self.clone().norecovery(true))?;
        let reason = dispatch::read_only_because(probe(path, &device, self)?, &*device);
        reason.map_err(|source| Error::image(path, source))
    }

    /// Replays the journal or log of an image, completes operations interrupted by a crash, and marks it clean.
    ///
    /// # Errors
    /// Same as opening it for writing, and as [`Image::close`].
    pub fn recover(&self, path: impl AsRef<Path>) -> Result<RecoverReport> {
        let image = self.clone().write(true).open(path)?;
        let report = image.recovery();
        image.close().map(|()| report)
    }
}

/// Opens the device selected by the options for reading. Other programs cannot change it while it is open, unless
/// the options allow that.
pub(crate) fn open_device(path: &Path, options: &ImageOptions) -> Result<Arc<dyn BlockDevice>> {
    window(path, open_whole(path, options)?, options)
}

/// Opens the device that contains the image for reading.
fn open_whole(path: &Path, options: &ImageOptions) -> Result<Arc<dyn BlockDevice>> {
    if let Some(device) = places::open_place(path, options.norecovery)? {
        return Ok(device);
    }
    let file = lock::open_to_read(path, options.norecovery)?;
    Ok(Arc::new(lock::device(path, file)?))
}

/// Opens the device selected by the options for writing. Other programs cannot use it while it is open.
pub(crate) fn open_device_to_write(
    path: &Path,
    options: &ImageOptions,
) -> Result<Arc<dyn BlockDevice>> {
    window_to_write(path, devices::open(path, false, DevicePurpose::Write)?, options)
}

/// Returns the format of an image, if its magic number is known.
pub(crate) fn format_of(path: &Path, device: &dyn BlockDevice) -> Result<Option<Format>> {
    let signature = Signature::of(device).map_err(|e| Error::host("read", path, e))?;
    Ok(Format::of(&signature))
}

/// Returns the format of an image under construction.
pub(crate) fn format_of_device(device: &dyn BlockDevice) -> io::Result<Option<Format>> {
    Ok(Format::of(&Signature::of(device)?))
}

/// Returns the format of an image. The error describes the detected contents instead.
pub(crate) fn probe(
    path: &Path,
    device: &Arc<dyn BlockDevice>,
    options: &ImageOptions,
) -> Result<Format> {
    let signature = Signature::of(&**device).map_err(|e| Error::host("read", path, e))?;
    Format::of(&signature).ok_or_else(|| {
        let source = no_format(&**device, signature, options);
        Error::image(path, source)
    })
}

/// Returns the part of the device selected by the options, for reading, together with the other devices of the image.
pub(crate) fn window(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &ImageOptions,
) -> Result<Arc<dyn BlockDevice>> {
    join(path, device, options, DevicePurpose::Read)
}

/// Like [`window`], for writing.
pub(crate) fn window_to_write(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &ImageOptions,
) -> Result<Arc<dyn BlockDevice>> {
    join(path, device, options, DevicePurpose::Write)
}

fn join(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &ImageOptions,
    access: DevicePurpose,
) -> Result<Arc<dyn BlockDevice>> {
    let device = match (&options.mapfile, access) {
        (None, _) => device,
        (Some(map), DevicePurpose::Read) => Arc::new(RescuedDevice::new(device, Arc::clone(map))),
        (Some(_), DevicePurpose::Write) => {
            let message = "an image with a mapfile can only be read; copy it to change it";
            return Err(Error::Usage(message.to_owned()));
        }
    };
    let device = window_alone(path, device, options, access)?;
    devices::join(path, device, &options.devices, options.norecovery, access)
}

/// Returns the part of the device selected by the options, without other devices.
fn window_alone(
    path: &Path,
    device: Arc<dyn BlockDevice>,
    options: &ImageOptions,
    access: DevicePurpose,
) -> Result<Arc<dyn BlockDevice>> {
    let device = part(path, device, options, access)?;
    Ok(match &options.undo {
        Some(undo) => Arc::new(::ext4::e2undo::UndoneDevice::new(device, Arc::clone(undo))),
        None => device,
    })
}

/// Creates the error for an image of unknown format.
fn no_format(device: &dyn BlockDevice, signature: Signature, options: &ImageOptions) -> FsError {
    let is_whole = options.partition.is_none() && options.offset == 0;
    let partitions = if is_whole { partition::read(device).ok().flatten() } else { None };
    if let Some(partitions) = partitions.filter(|partitions| !partitions.is_empty()) {
        return whole_disk(&partitions);
    }
    let what = match signature {
        Signature::Other(found) => return FsError::unsupported(found.description(), found.advice),
        Signature::Lost(lost) => {
            let what = format!(
                "an {} file system without a valid superblock; another structure of it is at byte \
                 {}",
                lost.format, lost.at
            );
            return FsError::unsupported(what, Hint::CheckOrSalvage);
        }
        Signature::Zeros => "an image that starts with zeros only",
        _ => "neither an ext2/3/4 nor an XFS image",
    };
    FsError::unsupported(what, if is_whole { Advice::hint(Hint::PartOrDamaged) } else { DAMAGED })
}

const DAMAGED: Advice = Advice::before("if it is damaged, ", Hint::SearchCopies);

fn whole_disk(partitions: &[Partition]) -> FsError {
    let what = format!("a disk with partitions; {}", partition::overview(partitions));
    FsError::unsupported(what, Hint::ChooseListed)
}
