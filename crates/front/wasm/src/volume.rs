//! Open image, and the creation and check of file systems.

use std::cell::{Cell, RefCell};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use diskwright::check::{self, ImageCheck, Observer, Summary};
use diskwright::fs::{Ext4Options, FormatOptions, NewImage, XfsOptions};
use diskwright::{Image, UnknownFormat};
use serde::Deserialize;

use crate::failure::{Failure, Result};
use crate::place::Place;

/// Default metadata cache size in bytes. A module has at most 4 GiB of memory.
const CACHE_BYTES_DEFAULT: usize = 64 << 20;

/// Options for opening a file system.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Open {
    /// Location.
    #[serde(flatten)]
    pub(crate) place: Place,
    /// Open for writing.
    pub(crate) writable: bool,
    /// Read without recovering the journal or log.
    pub(crate) norecovery: bool,
    /// Metadata cache size in bytes.
    pub(crate) cache_bytes: Option<usize>,
}

/// Options of a new file system.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Format {
    /// `ext4` or `xfs`.
    fs: String,
    label: String,
    /// 32 hexadecimal digits, with dashes or without.
    uuid: String,
    block_size: Option<u32>,
    /// Changes of features in the syntax of the format's mkfs.
    features: String,
    /// True if the device is zeroed.
    is_blank: bool,
    /// Allow XFS images below 300 MiB, which mkfs.xfs refuses.
    small: bool,
}

impl Format {
    /// Sets the options that both formats have.
    fn common<F>(&self, new: NewImage<F>) -> NewImage<F> {
        let new = new.label(self.label.clone()).features(&self.features);
        match self.block_size {
            Some(bytes) => new.block_size(bytes),
            None => new,
        }
    }
}

/// Open file system that can be closed while shared. Later calls then fail.
pub(crate) struct Volume {
    image: RefCell<Option<Image>>,
    /// True if a call is running. A device that makes another call during a read would deadlock.
    is_busy: Cell<bool>,
    pub(crate) is_writable: bool,
}

struct Busy<'v>(&'v Cell<bool>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Volume {
    /// Opens a file system on a disk.
    ///
    /// # Errors
    /// If it is not a usable image.
    pub(crate) fn open(disk: &Arc<dyn BlockDevice>, options: &Open) -> Result<Self> {
        let how = options.place.options()?.write(options.writable).norecovery(options.norecovery);
        let how = how.cache_bytes(options.cache_bytes.unwrap_or(CACHE_BYTES_DEFAULT));
        let image = how.open_device(Arc::clone(disk))?;
        vfs::path::check_root(&*image.file_system()?)?;
        let image = RefCell::new(Some(image));
        Ok(Self { image, is_busy: Cell::new(false), is_writable: options.writable })
    }

    /// Calls `work` with the open image.
    ///
    /// # Errors
    /// `EBADF` after closing, `EBUSY` during another call.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Image) -> Result<T>) -> Result<T> {
        let _busy = self.begin()?;
        match &*self.image.borrow() {
            Some(image) => work(image),
            None => Err(closed()),
        }
    }

    /// Makes all changes durable and marks the image clean. It is closed even on errors.
    ///
    /// # Errors
    /// If the device fails. The image is then in the state after a crash.
    pub(crate) fn close(&self) -> Result<()> {
        let _busy = self.begin()?;
        let image = self.image.borrow_mut().take();
        Ok(image.ok_or_else(closed)?.close()?)
    }

    fn begin(&self) -> Result<Busy<'_>> {
        if self.is_busy.replace(true) {
            let message = "the image is busy; its device must not use it during a read or write";
            return Err(Failure::new("EBUSY", message));
        }
        Ok(Busy(&self.is_busy))
    }
}

fn closed() -> Failure {
    Failure::new("EBADF", "the image is closed; open it again")
}

/// Creates an empty file system that fills a device, and leaves it clean.
///
/// # Errors
/// If the options are invalid, or the device is too small or fails.
pub(crate) fn format(device: &Arc<dyn BlockDevice>, options: &Format) -> Result<()> {
    let uuid = parse_uuid(&options.uuid)?;
    let format: diskwright::Format =
        options.fs.parse().map_err(|error: UnknownFormat| Failure::invalid(error.to_string()))?;
    let new: FormatOptions = match format {
        diskwright::Format::Ext4 => {
            let mut hash_seed = uuid;
            hash_seed.reverse();
            options.common(Ext4Options::new().uuid(uuid)).hash_seed(hash_seed).into()
        }
        diskwright::Format::Xfs => {
            options.common(XfsOptions::new().uuid(uuid)).allow_small(options.small).into()
        }
    };
    Ok(new.write(&**device, options.is_blank)?)
}

fn parse_uuid(text: &str) -> Result<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    number.map(u128::to_be_bytes).ok_or_else(|| {
        Failure::invalid(format!("{text:?} is not a UUID: it must have 32 hexadecimal digits"))
    })
}

/// Runs the checker of the device's format and returns the format.
///
/// # Errors
/// If the check is impossible.
pub(crate) fn check(
    disk: &Arc<dyn BlockDevice>,
    place: Place,
    observer: &dyn Observer,
) -> Result<(diskwright::Format, Summary)> {
    // A module has one thread.
    let options = check::Options::default().with_threads(NonZero::<usize>::MIN);
    let subject = ImageCheck::on_device(Path::new("disk"), Arc::clone(disk), &place.options()?)?;
    Ok((subject.format(), subject.check(&options, observer)?))
}
