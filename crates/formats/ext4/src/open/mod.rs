//! Opening and closing: checks of the image, and what both write.

pub(crate) mod label;
pub(crate) mod superblock_candidates;
pub(crate) mod superblock_copy;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;
use vfs::hint::Hint;

use disk::{BlockDevice, OverlayDevice};
use engine::Engine;
use engine::locks::Mutex;
use operations::profile::ListingProfile;
use vfs::{Corruption, Error, Result};
use zerocopy::FromBytes;

use crate::Ext4Core;
use crate::alloc::groups::Trust;
use crate::alloc::spread::Spread;
use crate::deferred_create;
use crate::format::address::Group;
use crate::format::features::{Compat, Incompat, RoCompat};
use crate::format::superblock::{RawSuperblock, STATE_ERROR, STATE_VALID, Superblock};
use crate::fs::{OpenOptions, StateBefore};
use crate::fscrypt::KeyCache;
use crate::kind::BlockKind;
use crate::log::{self, Journal, JournalMap};
use crate::mmp::{self, MmpOptions, Purpose};
use crate::orphan::Orphans;
use crate::params::clock::Clock;
use crate::params::read_superblock;
use crate::volume::Volume;
use operations::locks::InodeLocks;
use operations::mounted::OpenImages;
use operations::{Mode, Mounted};
use superblock_copy::Copy;

impl OpenImages for Ext4Core {
    type Options = OpenOptions;

    /// With `norecovery`, a damaged journal is ignored.
    fn open(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let damage = match read_superblock(&*device) {
            Ok(sb) => {
                log::refuse_unused(&*device, &sb)?;
                let mut fs = Self::open_found(device, &sb, options)?;
                fs.found.superblock = sb;
                return Ok(fs);
            }
            Err(Error::Corrupt(damage)) => damage,
            Err(error) => return Err(error),
        };
        let Some(copy) = Copy::find(&*device) else { return Err(damage.into()) };
        let (device, sb) = copy.in_place(device)?;
        let mut fs = Self::open_found(device, &sb, options)?;
        fs.found.superblock = sb;
        // The copy does not show whether the journal contains changes; the journal does.
        if fs.recovered.transactions == 0 && !copy.is_marked() {
            fs.found.superblock.features.incompat.remove(Incompat::RECOVER);
        }
        fs.found.remarks.insert(0, copy.remark(&damage));
        Ok(fs)
    }

    fn open_writable(device: Arc<dyn BlockDevice>, options: &OpenOptions) -> Result<Self> {
        let sb =
            read_superblock(&*device).map_err(|error| superblock_copy::advise(&*device, error))?;
        check_changeable(&sb)?;
        log::refuse_unused(&*device, &sb)?;
        let claim = MmpOptions { time: options.mmp.time.or(options.time), ..options.mmp };
        let Some(claim) = mmp::claim(&device, &sb, &claim, Purpose::Change)? else {
            return Self::open_claimed(device, &sb, options);
        };
        match Self::open_claimed(Arc::clone(&claim) as _, &sb, options) {
            Ok(mut fs) => {
                fs.claim = Some(claim);
                Ok(fs)
            }
            Err(error) => {
                // The first error matters more than one of the release.
                let _ = claim.release();
                Err(error)
            }
        }
    }

    fn open_in_progress(device: Arc<dyn BlockDevice>, cache_bytes: usize) -> Result<Self> {
        let options = OpenOptions { cache_bytes, ..OpenOptions::default() };
        let fs = Self::with_device(device, None, &options, Mode::InProgress)?;
        if let Some(reason) = fs.volume.sb.read_only_because() {
            return Err(Error::unsupported(reason, "leave these features out"));
        }
        if fs.volume.sb.features.ro_compat(RoCompat::QUOTA) {
            return Err(Error::unsupported(
                "creating an image with quotas",
                "leave the feature quota out",
            ));
        }
        Ok(fs)
    }

    fn close(self) -> Result<()> {
        if self.mode == Mode::ReadOnly {
            return Ok(());
        }
        operations::orphans::inactivate_all(&self)?;
        self.engine.empty_log()?;
        let mut raw = self.current_superblock()?;
        let mut features = raw.features();
        features.incompat.remove(Incompat::RECOVER);
        features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        raw.set_features(&features);
        raw.state = self.volume.sb.raw.state;
        raw.set_wtime(self.clock.now().saturating_sub(CLOCK_STEP).as_secs() as i64);
        let device = self.engine.device();
        self.volume.write_superblock(&raw, &**device)?;
        device.flush().map_err(Error::Device)?;
        self.claim.as_ref().map_or(Ok(()), |claim| claim.release().map_err(Error::Device))
    }

    fn finish(&self, uuid: Option<[u8; 16]>) -> Result<()> {
        self.check_writable()?;
        operations::orphans::inactivate_all(self)?;
        self.engine.checkpoint()?;
        let mut raw = self.volume.sb.raw.clone();
        let (clusters, inodes) = self.volume.groups.totals();
        self.volume.set_counts(&mut raw, clusters, inodes);
        let sb = &self.volume.sb;
        if sb.has_external_journal() {
            // The device was made for the last UUID.
            raw.journal_uuid = log::read_device(&**self.engine.device())?.raw.uuid;
        }
        if let Some(uuid) = uuid {
            if self.volume.uuid_is_seed() {
                return Err(Error::Invalid("checksums depend on the UUID"));
            }
            self.volume.write_uuid(uuid, &mut raw, &**self.engine.device())?;
        }
        if sb.has_external_journal() {
            let sb = Superblock { raw: raw.clone(), ..sb.clone() };
            log::set_user(&**self.engine.device(), &sb, Some(raw.uuid))?;
        }
        self.volume.write_superblock(&raw, &**self.engine.device())
    }
}

impl Ext4Core {
    /// Opens an image with the superblock `sb` for reading.
    fn open_found(
        device: Arc<dyn BlockDevice>,
        sb: &Superblock,
        options: &OpenOptions,
    ) -> Result<Self> {
        if !sb.features.incompat(Incompat::RECOVER) || options.norecovery {
            return Self::with_device(device.clone(), None, options, Mode::ReadOnly)
                .map_err(|error| advise_to_read(&*device, options, error));
        }
        let replayed: Arc<dyn BlockDevice> = Arc::new(OverlayDevice::new(device));
        let report = log::recover(&*replayed)?;
        if !report.fast_commits.is_empty() {
            let mut fs = Self::open_recovered(replayed, options, report)?;
            fs.mode = Mode::ReadOnly;
            return Ok(fs);
        }
        let mut fs = Self::with_device(replayed, None, options, Mode::ReadOnly)?;
        fs.recovered = report;
        Ok(fs)
    }

    /// Opens an image that no other host uses for changes.
    fn open_claimed(
        device: Arc<dyn BlockDevice>,
        sb: &Superblock,
        options: &OpenOptions,
    ) -> Result<Self> {
        check_fast_commits(&device, sb)?;
        let report = log::recover(&*device)?;
        Self::open_recovered(device, options, report)
    }

    /// Opens an image whose journal was replayed.
    fn open_recovered(
        device: Arc<dyn BlockDevice>,
        options: &OpenOptions,
        report: log::RecoveryReport,
    ) -> Result<Self> {
        let sb = read_superblock(&*device)?;
        check_changeable(&sb)?;
        if sb.features.ro_compat(RoCompat::BIGALLOC) && !report.fast_commits.is_empty() {
            return Err(no_fast_commits_in_clusters());
        }
        let map = JournalMap::read(&*device, &sb)?;
        let log = map.map(|map| Journal::open(device.clone(), map, &sb, report.resume));
        let clock = Clock { fixed: options.time };
        let log = log.transpose()?.map(|log| log.with_clock(clock));
        let fs = Self::with_device(device, log, options, Mode::Writable)?;
        // Detect damage before anything is written.
        let mut fs = Mounted::check_root(fs)?;
        fs.generations = arbitrary(clock);
        let orphans = fs.find_orphans()?;
        let quota = fs.read_quota()?;
        fs.mark_open()?;
        if !report.fast_commits.is_empty() {
            fs.apply_fast_commits(&report.fast_commits, quota)?;
        } else if let Some(quota) = quota {
            fs.count_usage(quota);
        }
        fs.clean_orphans(&orphans)?;
        fs.recovered = report;
        Ok(fs)
    }

    /// Returns the result of the journal replay when the image was opened.
    pub fn recovered(&self) -> &log::RecoveryReport {
        &self.recovered
    }

    /// Returns the superblock in the cache.
    pub(crate) fn current_superblock(&self) -> Result<RawSuperblock> {
        let (block, range) = self.volume.superblock_place();
        let bytes = self.block(block, BlockKind::Superblock.plain())?;
        let damage = |_| Corruption::new("superblock", "truncated");
        Ok(RawSuperblock::read_from_bytes(&bytes[range]).map_err(damage)?)
    }

    fn with_device(
        device: Arc<dyn BlockDevice>,
        log: Option<Journal>,
        options: &OpenOptions,
        mode: Mode,
    ) -> Result<Self> {
        let OpenOptions { cache_bytes, orphans: policy, defer_creates, time, .. } = *options;
        #[cfg(feature = "fscrypt")]
        let key_cache = KeyCache::new(options.keys.clone());
        #[cfg(not(feature = "fscrypt"))]
        let key_cache = KeyCache::default();
        let is_stale = options.norecovery && mode == Mode::ReadOnly;
        let trust = if is_stale { Trust::Contents } else { Trust::Checksums };
        let mut volume = Volume::read(&*device, trust)?;
        let remarks = remarks_on(volume.groups.unsealed());
        let found = StateBefore { superblock: volume.sb.clone(), remarks };
        volume.keeps_counts = mode == Mode::Writable;
        let volume = Arc::new(volume);
        let threads = options.checkpoint_threads;
        let options = engine::Options { block_size: volume.block_size(), cache_bytes };
        // Without a journal, the whole image must be checked after a crash anyway.
        let records = log.is_some();
        let defer_creates =
            defer_creates.filter(|_| deferred_create::is_possible(&volume, mode, records));
        let log = log.map(|log| Box::new(log) as Box<dyn engine::Log>);
        let engine = Engine::new(device, volume.clone(), log, options);
        engine.set_checkpoint_threads(threads);
        Ok(Self {
            engine,
            volume,
            locks: InodeLocks::new(),
            spread: Spread::default(),
            value_inodes: Mutex::default(),
            generations: 0,
            recovered: log::RecoveryReport::default(),
            mode,
            found,
            clock: Clock { fixed: time },
            orphans: Orphans::new(policy, records),
            listings: ListingProfile::default(),
            deferred: operations::deferred_create::DeferredCreates::new(defer_creates, cache_bytes),
            key_cache,
            claim: None,
        })
    }

    /// Marks the file system as open for writing in its superblock.
    fn mark_open(&self) -> Result<()> {
        let mut raw = self.volume.sb.raw.clone();
        let mut features = self.volume.sb.features;
        if features.compat(Compat::HAS_JOURNAL) {
            features.incompat.insert(Incompat::RECOVER);
        } else {
            raw.state = (raw.state.get() & !STATE_VALID).into();
        }
        if features.compat(Compat::ORPHAN_FILE) {
            features.ro_compat.insert(RoCompat::ORPHAN_PRESENT);
        }
        raw.set_features(&features);
        self.volume.write_superblock(&raw, &**self.engine.device())?;
        self.engine.device().flush().map_err(Error::Device)
    }
}

/// Returns a remark on groups whose descriptors were accepted despite wrong checksums.
fn remarks_on(unsealed: &[Group]) -> Vec<String> {
    let Some(first) = unsealed.first() else { return Vec::new() };
    let which = match unsealed.len() {
        1 => format!("group {first} has"),
        count => format!("{count} groups, starting with {first}, have"),
    };
    vec![format!("{which} a descriptor with a wrong checksum, which is ignored")]
}

/// Adds advice to an error if the image can be read with `--norecovery`, because only checksums of group descriptors
/// are wrong.
fn advise_to_read(device: &dyn BlockDevice, options: &OpenOptions, error: Error) -> Error {
    match error {
        Error::Corrupt(damage)
            if !options.norecovery && Volume::read(device, Trust::Contents).is_ok() =>
        {
            damage.advise(Hint::NoRecoveryOrRepair.to_string()).into()
        }
        error => error,
    }
}

/// Checks that an image may be changed: this build must be able to maintain all its features.
fn check_changeable(sb: &Superblock) -> Result<()> {
    if let Some(reason) = sb.read_only_because() {
        return Err(Error::unsupported(reason, "open it read-only"));
    }
    check_clusters(sb)?;
    let state = sb.raw.state.get();
    if state & STATE_ERROR != 0 {
        return Err(Error::unsupported(
            "changing an image marked as damaged",
            "run diskwright repair first",
        ));
    }
    if !sb.features.compat(Compat::HAS_JOURNAL) && state & STATE_VALID == 0 {
        return Err(Error::unsupported(
            "changing an image without a journal that was not cleanly unmounted",
            "run diskwright repair first",
        ));
    }
    Ok(())
}

/// Checks that this build can maintain files in an image with clusters.
fn check_clusters(sb: &Superblock) -> Result<()> {
    let features = &sb.features;
    if !features.ro_compat(RoCompat::BIGALLOC) {
        return Ok(());
    }
    if !features.incompat(Incompat::EXTENTS) {
        let damage = "bigalloc without extents, because block maps do not support clusters";
        return Err(Corruption::new("superblock", damage).into());
    }
    Ok(())
}

/// Rejects fast commits in an image with clusters before its journal is replayed. The journal is replayed in memory to
/// find them.
fn check_fast_commits(device: &Arc<dyn BlockDevice>, sb: &Superblock) -> Result<()> {
    let may_have = sb.features.ro_compat(RoCompat::BIGALLOC)
        && sb.features.compat(Compat::FAST_COMMIT)
        && sb.features.incompat(Incompat::RECOVER);
    if may_have && !log::recover(&OverlayDevice::new(device.clone()))?.fast_commits.is_empty() {
        return Err(no_fast_commits_in_clusters());
    }
    Ok(())
}

fn no_fast_commits_in_clusters() -> Error {
    Error::unsupported(
        "replaying fast commits in an image with bigalloc",
        "mount and unmount it, or run e2fsck first",
    )
}

/// Maximum lag of the coarse clock that e2fsck reads. A superblock must not appear to be from the future.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// Returns a number that differs between openings, for the generations of new inodes.
fn arbitrary(clock: Clock) -> u32 {
    let now = clock.now();
    (now.as_secs() as u32).rotate_left(16) ^ now.subsec_nanos()
}
