//! Opening and closing file systems: the checks at open, and the writes at open and close.

pub(crate) mod cut;
pub(crate) mod label;
pub(crate) mod realtime;
pub(crate) mod root;
pub(crate) mod superblock_copy;
pub(crate) mod superblocks;

use std::sync::Arc;
use vfs::hint::{Advice, Hint, Setting};

use disk::{BlockDevice, OverlayDevice};
use engine::{Engine, Log};
use operations::deferred_create::DeferredCreates;
use operations::locks::InodeLocks;
use operations::profile::ListingProfile;
use vfs::{Error, Result};

use crate::XfsCore;
use crate::deferred_create;
use crate::dir::DirStates;
use crate::dir::free::FreeIndexStrategy;
use crate::file::Hints;
use crate::format::address::AgNumber;
use crate::format::log::intent::Intent;
use crate::format::superblock::Superblock;
use crate::fs::OpenOptions;
use crate::inode::GoneChunks;
use crate::log::{self, Recovered, XfsLog, log_is_clean};
use crate::orphan::Unlinked;
use crate::volume::{Backing, Volume, read_superblock};
use operations::mounted::OpenImages;
use operations::{Mode, Mounted};
use superblock_copy::Copy;

/// Refuses an image that cannot be changed correctly. Returns whether its log has nothing to replay.
fn check_writable(device: &dyn BlockDevice) -> Result<bool> {
    let sb = read_superblock(device).map_err(|error| superblock_copy::advise(device, error))?;
    match sb.read_only_because() {
        Some(reason) => Err(Error::unsupported(reason, "open it read-only")),
        None => log_is_clean(device, &sb),
    }
}

impl OpenImages for XfsCore {
    type Options = OpenOptions;

    fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
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

    fn open_writable(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        realtime::require_device(&*device)?;
        if !check_writable(&*device)? {
            // In memory first: intents in the log may contradict the image. This must be detected before anything is
            // written.
            let fs = Self::open_recovered(Arc::new(OverlayDevice::new(device.clone())), options)?;
            Mounted::check_root(fs)?;
        }
        let fs = Mounted::check_root(Self::open_recovered(device, options)?)?;
        let mut fs = fs.without_leftovers()?;
        let policy =
            options.defer_creates.filter(|_| deferred_create::is_possible(&fs.volume, fs.mode));
        fs.deferred = DeferredCreates::new(policy, options.cache_bytes);
        Ok(fs)
    }

    /// Until [`OpenImages::finish`], the superblock is marked as in progress, so that the image is not mistaken for a
    /// complete file system.
    fn open_in_progress(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<Self> {
        realtime::require_device(&*device)?;
        let sb = read_superblock(&*device)?;
        if let Some(reason) = sb.read_only_because() {
            return Err(Error::unsupported(reason, "leave these features out"));
        }
        let fs = Self::with_device(device, None, cache_bytes, Mode::InProgress)?;
        fs.load_realtime(false)?;
        fs.edit_superblock(AgNumber(0), |raw| raw.inprogress = 1)?;
        fs.engine.checkpoint()?;
        fs.load_unlinked_lists()?;
        Ok(fs)
    }

    fn close(self) -> Result<()> {
        if self.mode == Mode::ReadOnly {
            return Ok(());
        }
        operations::orphans::inactivate_all(&self)?;
        self.engine.checkpoint()?;
        self.flush_superblock()?;
        self.engine.empty_log()?;
        self.log.as_ref().map_or(Ok(()), XfsLog::close)
    }

    fn finish(&self, uuid: Option<[u8; 16]>) -> Result<()> {
        self.check_writable()?;
        operations::orphans::inactivate_all(self)?;
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

impl XfsCore {
    /// Opens an image with superblock `sb` for reading.
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
            if let Some(reason) = sb.unmaintained() {
                return Err(Error::unsupported(
                    format!("replaying the log of an image that cannot be written ({reason})"),
                    Advice::before(
                        "mount and unmount it once, or read it without its log: ",
                        Hint::Use(Setting::NORECOVERY),
                    ),
                ));
            }
            let overlay = Arc::new(OverlayDevice::new(device));
            let mut fs = Self::open_recovered(overlay, options)?.without_leftovers()?;
            fs.mode = Mode::ReadOnly;
            return Ok(fs);
        }
        Self::with_device(device, None, options.cache_bytes, Mode::ReadOnly)
    }

    /// Opens an image for changes, replays its log and finishes its intents.
    pub(crate) fn open_recovered(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<Self> {
        Self::open_replayed(device, options, true)
    }

    /// Like [`Self::open_recovered`], for the check of an image: quotas stay as in the log.
    pub(crate) fn open_uncounted(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
    ) -> Result<Self> {
        Self::open_replayed(device, options, false)
    }

    fn open_replayed(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
        counts_quotas: bool,
    ) -> Result<Self> {
        let sb = read_superblock(&*device)?;
        let Recovered { report, intents, position } = log::recover(&*device, &sb)?;
        // The log may have contained a newer superblock.
        let sb = read_superblock(&*device)?;
        let mut fs = match sb.features.crc() {
            true => Self::with_log(device, &sb, (position, options.cache_bytes))?,
            // The log of version 4 cannot be written, so changes are written in place: in memory or by a repair.
            false => Self::with_device(device, None, options.cache_bytes, Mode::InProgress)?,
        };
        fs.engine.set_checkpoint_threads(options.checkpoint_threads);
        fs.load_realtime(report.transactions > 0)?;
        fs.load_unlinked_lists()?;
        fs.recovered = log::Report { intents: intents.len() as u64, ..report };
        if counts_quotas {
            fs.start_quotas(intents.iter().all(Intent::is_counted))?;
        }
        fs.finish_intents(intents)?;
        fs.free_staged()?;
        Ok(fs)
    }

    /// Opens an image with a replayed log for changes.
    fn with_log(
        device: Arc<dyn BlockDevice>,
        sb: &Superblock,
        (position, cache_bytes): (log::Position, usize),
    ) -> Result<Self> {
        let log = XfsLog::open(device.clone(), sb, position)?;
        let hook: Box<dyn Log> = Box::new(log.clone());
        let mut fs = Self::with_device(device, Some(hook), cache_bytes, Mode::Writable)?;
        fs.log = Some(log);
        Ok(fs)
    }

    /// Frees unlinked inodes left by a crash.
    fn without_leftovers(mut self) -> Result<Self> {
        self.freed_at_open = operations::orphans::inactivate_all(&self)?;
        Ok(self)
    }

    /// Returns the superblock as found when the image was opened. [`Self::superblock`] may differ, because replaying
    /// the log can change it.
    pub fn superblock_found(&self) -> &Superblock {
        &self.found
    }

    /// Returns descriptions of damage that did not prevent opening the image.
    pub fn remarks(&self) -> &[String] {
        &self.remarks
    }

    /// Returns the report of the log recovery at open.
    pub fn recovered(&self) -> &log::Report {
        &self.recovered
    }

    /// Returns the number of bytes written to the log since the image was opened; `None` if there is no log.
    pub fn log_bytes_written(&self) -> Option<u64> {
        self.log.as_ref().map(XfsLog::bytes_written)
    }

    /// Returns the number of unlinked inodes, left by a crash, that were freed at open.
    pub fn freed_at_open(&self) -> u64 {
        self.freed_at_open
    }

    /// Writes the superblock's totals and flags of a cleanly closed file system.
    pub(crate) fn flush_superblock(&self) -> Result<()> {
        let totals = self.volume.totals();
        let raw = &self.volume.sb.raw;
        let frextents = match self.volume.geometry.realtime {
            Some(_) => self.volume.ags.free_realtime(&self.volume.geometry),
            None => raw.frextents.get(),
        };
        let is_right = totals.icount == raw.icount.get()
            && frextents == raw.frextents.get()
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
            raw.frextents = frextents.into();
            raw.features_log_incompat = 0.into();
        })
    }

    pub(crate) fn with_device(
        device: Arc<dyn BlockDevice>,
        log: Option<Box<dyn Log>>,
        cache_bytes: usize,
        mode: Mode,
    ) -> Result<Self> {
        let volume = Arc::new(Volume::read(&*device)?);
        realtime::check_device(&*device, &volume.sb)?;
        Ok(Self::of_volume(device, log, volume, cache_bytes, mode))
    }

    /// Returns an open file system with the given superblock and groups.
    pub(crate) fn of_volume(
        device: Arc<dyn BlockDevice>,
        log: Option<Box<dyn Log>>,
        volume: Arc<Volume>,
        cache_bytes: usize,
        mode: Mode,
    ) -> Self {
        let options = engine::Options { block_size: volume.block_size(), cache_bytes };
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
            deferred: DeferredCreates::new(None, cache_bytes),
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
}
