//! Opening and closing: what an image must be to be opened, and what is written then.

pub(crate) mod cut;
pub(crate) mod label;
pub(crate) mod root;
pub(crate) mod superblock_copy;
pub(crate) mod superblocks;

use std::sync::Arc;

use blockdev::{BlockDevice, OverlayDevice};
use operation::locks::InodeLocks;
use operation::profile::ListingProfile;
use operation::waiting::Waiting;
use transaction::{Engine, Log};
use vfs::{Error, Result};

use crate::Xfs;
use crate::dir::DirStates;
use crate::dir::free::FreeIndexStrategy;
use crate::file::Hints;
use crate::format::address::AgNumber;
use crate::format::superblock::Superblock;
use crate::fs::OpenOptions;
use crate::inode::GoneChunks;
use crate::log::{self, Recovered, XfsLog, log_is_clean};
use crate::orphan::Unlinked;
use crate::volume::{Backing, Volume, read_superblock};
use crate::waiting;
use operation::Mode;
use superblock_copy::Copy;

/// Refuses an image that cannot be kept right when it is changed. Whether its log has nothing to replay.
fn check_writable(device: &dyn BlockDevice) -> Result<bool> {
    let sb = read_superblock(device).map_err(|error| superblock_copy::advise(device, error))?;
    match sb.read_only_because() {
        Some(reason) => Err(Error::unsupported(reason, "open it for reading")),
        None => log_is_clean(device, &sb),
    }
}

impl Xfs {
    /// Opens an image to read it. A log that has something to replay is replayed in memory only, unless the
    /// options say to read the image as it lies.
    ///
    /// # Errors
    /// `Unsupported` for features this build cannot read, and for a log that cannot be replayed or is on
    /// another device; `Corrupt` for a superblock or group headers that cannot be right, or a damaged log.
    pub fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let damage = match read_superblock(&*device) {
            Ok(sb) => return Self::open_found(device, sb, options),
            Err(Error::Corrupt(damage)) => damage,
            Err(error) => return Err(error),
        };
        let Some(copy) = Copy::find(&*device) else { return Err(damage.into()) };
        let device = copy.in_place(device)?;
        let sb = read_superblock(&*device)?;
        let mut fs = Self::open_found(device, sb, options)?;
        fs.remarks.push(copy.remark(&damage));
        Ok(fs)
    }

    /// Opens an image to read it whose superblock was found to be `sb`.
    fn open_found(
        device: Arc<dyn BlockDevice>,
        sb: Superblock,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut fs = Self::open_to_read(device, &sb, options)?;
        fs.found = sb;
        Ok(fs)
    }

    fn open_to_read(
        device: Arc<dyn BlockDevice>,
        sb: &Superblock,
        options: &OpenOptions,
    ) -> Result<Self> {
        if !options.norecovery && !log_is_clean(&*device, sb)? {
            if let Some(reason) = sb.read_only_because() {
                return Err(Error::unsupported(
                    format!("replaying the log of an image with what cannot be written ({reason})"),
                    "mount and unmount it once, or read it without what its log holds: --norecovery",
                ));
            }
            let overlay = Arc::new(OverlayDevice::new(device));
            check_writable(&*overlay)?;
            let mut fs = Self::open_recovered(overlay, options)?.without_leftovers()?;
            fs.mode = Mode::ReadOnly;
            return Ok(fs);
        }
        Self::with_device(device, None, options.cache_bytes, Mode::ReadOnly)
    }

    /// Opens an image to change it in place: replays its log and ends what a crash left unfinished
    /// first. [`Xfs::close`] must follow, or the image is left as after a crash.
    ///
    /// # Errors
    /// As [`Xfs::open`], and `Unsupported` for what this build cannot keep right when it writes.
    /// Nothing is written then.
    pub fn open_writable(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        if !check_writable(&*device)? {
            // In memory first: what the log announces may contradict the image, which is to be known before
            // anything is written.
            let fs = Self::open_recovered(Arc::new(OverlayDevice::new(device.clone())), options)?;
            vfs::path::check_root(&fs)?;
        }
        let fs = Self::open_recovered(device, options)?;
        vfs::path::check_root(&fs)?;
        let mut fs = fs.without_leftovers()?;
        let waiting = options.waiting.filter(|_| waiting::is_possible(&fs.volume, fs.mode));
        fs.waiting = Waiting::new(waiting, options.cache_bytes);
        Ok(fs)
    }

    /// Opens an image to change it, and does what its log holds and announces.
    pub(crate) fn open_recovered(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let sb = read_superblock(&*device)?;
        let Recovered { report, intents, position } = log::recover(&*device, &sb)?;
        // The log may have had a newer one.
        let sb = read_superblock(&*device)?;
        let log = XfsLog::open(device.clone(), &sb, position)?;
        let hook: Box<dyn Log> = Box::new(log.clone());
        let mut fs = Self::with_device(device, Some(hook), options.cache_bytes, Mode::Writable)?;
        fs.log = Some(log);
        fs.load_unlinked_lists()?;
        fs.recovered = log::Report { intents: intents.len() as u64, ..report };
        fs.finish_intents(intents)?;
        fs.free_staged()?;
        Ok(fs)
    }

    /// Frees inodes without names that a crash left, and lets go of counts that nobody keeps.
    fn without_leftovers(mut self) -> Result<Self> {
        self.freed_at_open = operation::orphans::inactivate_all(&self)?;
        self.drop_quota_counts()?;
        Ok(self)
    }

    /// The superblock as it lay in the image when that was opened: [`Self::superblock`] may have
    /// changed since, because replaying a log changes it.
    pub fn superblock_found(&self) -> &Superblock {
        &self.found
    }

    /// What whoever reads the image should know: damage that does not keep it from being read.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// What the recovery of the log did when the image was opened.
    pub fn recovered(&self) -> &log::Report {
        &self.recovered
    }

    /// Bytes written to the log since the image was opened; `None` if there is no log.
    pub fn log_bytes_written(&self) -> Option<u64> {
        self.log.as_ref().map(XfsLog::bytes_written)
    }

    /// How many inodes without names a crash had left, which were freed when the image was opened.
    pub fn freed_at_open(&self) -> u64 {
        self.freed_at_open
    }

    /// Frees what is open without a name, writes everything and leaves the image clean.
    ///
    /// # Errors
    /// If the device fails, or something to be freed is damaged. The image is then as after a crash.
    pub fn close(self) -> Result<()> {
        if self.mode == Mode::ReadOnly {
            return Ok(());
        }
        operation::waiting::settle_all(&self)?;
        operation::orphans::inactivate_all(&self)?;
        self.engine.checkpoint()?;
        self.flush_superblock()?;
        self.engine.empty_log()?;
        self.log.as_ref().map_or(Ok(()), XfsLog::close)
    }

    /// Brings into the superblock what it says of a file system that nobody has open.
    pub(crate) fn flush_superblock(&self) -> Result<()> {
        let totals = self.volume.totals();
        let raw = &self.volume.sb.raw;
        let is_right = totals.icount == raw.icount.get()
            && totals.ifree == raw.ifree.get()
            && totals.fdblocks == raw.fdblocks.get()
            && raw.features_log_incompat.get() == 0;
        if is_right {
            return Ok(());
        }
        self.edit_superblock(AgNumber(0), |raw| {
            raw.icount = totals.icount.into();
            raw.ifree = totals.ifree.into();
            raw.fdblocks = totals.fdblocks.into();
            raw.features_log_incompat = 0.into();
        })
    }

    /// Opens an image that mkfs has just made, to fill it. Until [`Xfs::finish`], its superblock says
    /// that it is being made, so that nobody takes it for sound.
    ///
    /// # Errors
    /// As [`Xfs::open`], and `Unsupported` for features this build cannot write.
    pub fn open_in_progress(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<Self> {
        let sb = read_superblock(&*device)?;
        if let Some(reason) = sb.read_only_because() {
            return Err(Error::unsupported(reason, "leave those features out"));
        }
        let fs = Self::with_device(device, None, cache_bytes, Mode::InProgress)?;
        fs.edit_superblock(AgNumber(0), |raw| raw.inprogress = 1)?;
        fs.engine.checkpoint()?;
        fs.load_unlinked_lists()?;
        Ok(fs)
    }

    pub(crate) fn with_device(
        device: Arc<dyn BlockDevice>,
        log: Option<Box<dyn Log>>,
        cache_bytes: usize,
        mode: Mode,
    ) -> Result<Self> {
        let volume = Arc::new(Volume::read(&*device)?);
        Ok(Self::of_volume(device, log, volume, cache_bytes, mode))
    }

    /// A file system whose superblock and groups are known.
    pub(crate) fn of_volume(
        device: Arc<dyn BlockDevice>,
        log: Option<Box<dyn Log>>,
        volume: Arc<Volume>,
        cache_bytes: usize,
        mode: Mode,
    ) -> Self {
        let options = transaction::Options { block_size: volume.block_size(), cache_bytes };
        let dirs = Arc::new(DirStates::new(cache_bytes));
        let keeps_totals = log.is_none();
        let backing = Backing { volume: volume.clone(), dirs: dirs.clone(), keeps_totals };
        let engine = Engine::new(device, Arc::new(backing), log, options);
        let unlinked = Unlinked::new(volume.geometry.ag_count);
        let hints = Hints::new(&volume.geometry);
        let (locks, gone) = (InodeLocks::new(), GoneChunks::default());
        let free_index = FreeIndexStrategy::default();
        let listings = ListingProfile::default();
        let recovered = log::Report::default();
        let found = volume.sb.clone();
        Self {
            engine,
            volume,
            locks,
            unlinked,
            gone,
            waiting: Waiting::new(None, cache_bytes),
            dirs,
            free_index,
            mode,
            hints,
            listings,
            recovered,
            found,
            remarks: Vec::new(),
            freed_at_open: 0,
            log: None,
        }
    }

    /// Ends the filling of an image in progress: frees what has no name, open or not, and writes all metadata,
    /// then the superblock, with a new uuid if one is given.
    ///
    /// # Errors
    /// If the device fails. The image is then not sound.
    pub fn finish(&self, uuid: Option<[u8; 16]>) -> Result<()> {
        self.check_writable()?;
        operation::orphans::inactivate_all(self)?;
        if let Some(uuid) = uuid {
            self.change_uuid_of_copies(uuid)?;
        }
        self.engine.checkpoint()?;
        self.edit_superblock(AgNumber(0), |raw| {
            raw.inprogress = 0;
            uuid.into_iter().for_each(|uuid| superblocks::set_uuid(raw, uuid));
        })?;
        Ok(self.engine.checkpoint()?)
    }
}
