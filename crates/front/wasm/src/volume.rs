//! Open file system of either format. This is the only module that uses both formats.

use std::cell::{Cell, RefCell};
use std::num::NonZero;
use std::sync::Arc;

use disk::BlockDevice;
use disk::partition::Signature;
use diskwright::check::{self, Observer, Summary};
use ext4::Ext4;
use serde::Deserialize;
use vfs::survey::TellsLayout;
use vfs::{FileSystem, Paths};
use xfs::Xfs;

use crate::failure::{Failure, Result};
use crate::place::{Place, no_file_system};

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

/// File system of either format.
pub(crate) enum Fs {
    Ext(Box<Ext4>),
    Xfs(Box<Xfs>),
}

impl Fs {
    /// Returns its operations.
    pub(crate) fn files(&self) -> &dyn FileSystem {
        match self {
            Self::Ext(fs) => &**fs,
            Self::Xfs(fs) => &**fs,
        }
    }

    /// Returns its layout.
    pub(crate) fn layout(&self) -> &dyn TellsLayout {
        match self {
            Self::Ext(fs) => &**fs,
            Self::Xfs(fs) => &**fs,
        }
    }

    fn close(self) -> vfs::Result<()> {
        match self {
            Self::Ext(fs) => fs.close(),
            Self::Xfs(fs) => fs.close(),
        }
    }
}

/// Open file system that can be closed while shared. Later calls then fail.
pub(crate) struct Volume {
    fs: RefCell<Option<Fs>>,
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
        let (device, signature) = options.place.window(disk)?;
        let fs = open_format(&device, signature, options)?;
        vfs::path::check_root(fs.files())?;
        let fs = RefCell::new(Some(fs));
        Ok(Self { fs, is_busy: Cell::new(false), is_writable: options.writable })
    }

    /// Calls `work` with the open file system.
    ///
    /// # Errors
    /// `EBADF` after closing, `EBUSY` during another call.
    pub(crate) fn with_fs<T>(&self, work: impl FnOnce(&Fs) -> Result<T>) -> Result<T> {
        let _busy = self.begin()?;
        match &*self.fs.borrow() {
            Some(fs) => work(fs),
            None => Err(closed()),
        }
    }

    /// Calls `work` with its files.
    ///
    /// # Errors
    /// Same as [`Self::with_fs`].
    pub(crate) fn with<T>(&self, work: impl FnOnce(Paths<'_>) -> Result<T>) -> Result<T> {
        self.with_fs(|fs| work(Paths::new(fs.files())))
    }

    /// Makes all changes durable and marks the image clean. It is closed even on errors.
    ///
    /// # Errors
    /// If the device fails. The image is then in the state after a crash.
    pub(crate) fn close(&self) -> Result<()> {
        let _busy = self.begin()?;
        let fs = self.fs.borrow_mut().take();
        fs.ok_or_else(closed)?.close().map_err(Failure::from)
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

fn open_format(device: &Arc<dyn BlockDevice>, signature: Signature, options: &Open) -> Result<Fs> {
    let Open { writable, norecovery, .. } = *options;
    let cache_bytes = options.cache_bytes.unwrap_or(CACHE_BYTES_DEFAULT);
    if writable && norecovery {
        let message = "changing an image requires recovery; leave norecovery out";
        return Err(Failure::invalid(message));
    }
    let shared = Arc::clone(device);
    let opened = match signature {
        Signature::Ext => {
            let options = ext4::OpenOptions { cache_bytes, norecovery, ..Default::default() };
            let open = if writable { Ext4::open_writable } else { Ext4::open };
            open(shared, &options).map(|fs| Fs::Ext(Box::new(fs)))
        }
        Signature::Xfs => {
            let options = xfs::OpenOptions { cache_bytes, norecovery, ..Default::default() };
            let open = if writable { Xfs::open_writable } else { Xfs::open };
            open(shared, &options).map(|fs| Fs::Xfs(Box::new(fs)))
        }
        other => return Err(no_file_system(device, other)),
    };
    opened.map_err(Failure::from)
}

/// Creates an empty file system that fills a device, and leaves it clean.
///
/// # Errors
/// If the options are invalid, or the device is too small or fails.
pub(crate) fn format(device: &Arc<dyn BlockDevice>, options: &Format) -> Result<()> {
    let uuid = parse_uuid(&options.uuid)?;
    let time = vfs::clock::now().unwrap_or_default();
    match options.fs.as_str() {
        "ext4" => format_ext4(device, options, uuid, time)?,
        "xfs" => format_xfs(device, options, uuid, time)?,
        other => {
            let message = format!("fs is {other:?}: it must be \"ext4\" or \"xfs\"");
            return Err(Failure::invalid(message));
        }
    }
    Ok(device.flush()?)
}

fn format_ext4(
    device: &Arc<dyn BlockDevice>,
    options: &Format,
    uuid: [u8; 16],
    time: vfs::Timestamp,
) -> vfs::Result<()> {
    use ext4::mkfs;
    let mut hash_seed = uuid;
    hash_seed.reverse();
    let layout = mkfs::plan(&mkfs::Options {
        block_size: options.block_size,
        label: options.label.clone().into_bytes(),
        uuid,
        hash_seed,
        features: mkfs::FeatureChange::parse_list(&options.features)?,
        time,
        ..mkfs::Options::new(device.len())
    })?;
    let before = if options.is_blank { mkfs::Contents::Zeros } else { mkfs::Contents::Unknown };
    mkfs::format(&**device, &layout, before)
}

fn format_xfs(
    device: &Arc<dyn BlockDevice>,
    options: &Format,
    uuid: [u8; 16],
    time: vfs::Timestamp,
) -> vfs::Result<()> {
    use xfs::mkfs;
    let defaults = mkfs::Options::new(device.len());
    let layout = mkfs::plan(&mkfs::Options {
        block_size: options.block_size.unwrap_or(defaults.block_size),
        label: options.label.clone().into_bytes(),
        uuid,
        features: mkfs::FeatureChange::parse_list(&options.features)?,
        time,
        allow_small: options.small,
        ..defaults
    })?;
    let before = if options.is_blank { mkfs::Contents::Zeros } else { mkfs::Contents::Unknown };
    mkfs::format(&**device, &layout, before)
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
    let (device, signature) = place.window(disk)?;
    // A module has one thread.
    let options = check::Options::default().with_threads(NonZero::<usize>::MIN);
    let (format, summary) = match signature {
        Signature::Ext => {
            (diskwright::Format::Ext4, ext4::check::check(device, &options, observer))
        }
        Signature::Xfs => (diskwright::Format::Xfs, xfs::check::check(device, &options, observer)),
        other => return Err(no_file_system(&device, other)),
    };
    Ok((format, summary?))
}
