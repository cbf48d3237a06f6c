//! Making the quota files of a file system that is not open.

use std::sync::Arc;

use disk::BlockDevice;
use vfs::check::{FindingCounter, Options};
use vfs::{Error, Result, Timestamp};

use crate::XfsCore;
use crate::check::view;
use crate::format::address::AgNumber;
use crate::format::quota::{ALL_COUNTED, QuotaKind};
use crate::fs::{CACHE_BYTES_DEFAULT, OpenOptions};
use crate::log::log_is_clean;
use crate::volume::read_superblock;
use operations::mounted::OpenImages;

/// Quotas to account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quotas {
    /// Users, groups and projects.
    pub kinds: [bool; 3],
    /// True to enforce limits.
    pub enforces: bool,
}

impl Quotas {
    /// Quotas of users, groups and projects, with limits that are enforced.
    pub const ALL: Self = Self { kinds: [true; 3], enforces: true };

    /// Returns quotas of these kinds of [`QuotaKind`], with limits that are enforced if `enforces`.
    pub const fn new(kinds: [bool; 3], enforces: bool) -> Self {
        Self { kinds, enforces }
    }

    fn iter(self) -> impl Iterator<Item = QuotaKind> {
        QuotaKind::ALL.into_iter().filter(move |kind| self.kinds[*kind as usize])
    }

    /// Returns the flags for `sb_qflags`. Usage was counted.
    fn flags(self) -> u16 {
        let flags = |kind: QuotaKind| {
            kind.accounted() | kind.counted() | if self.enforces { kind.enforced() } else { 0 }
        };
        self.iter().fold(0, |all, kind| all | flags(kind))
    }
}

/// The way in which a file system is opened and changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// In place: it is new.
    InPlace,
    /// Through its log.
    Logged,
}

impl Way {
    fn open(self, device: &Arc<dyn BlockDevice>) -> Result<XfsCore> {
        match self {
            Self::InPlace => XfsCore::open_in_progress(Arc::clone(device), CACHE_BYTES_DEFAULT),
            Self::Logged => XfsCore::open_uncounted(Arc::clone(device), &OpenOptions::default()),
        }
    }

    fn close(self, fs: XfsCore) -> Result<()> {
        match self {
            Self::InPlace => fs.finish(None),
            Self::Logged => OpenImages::close(fs),
        }
    }
}

/// Makes quota files for a clean and sound file system of version 5, and counts the usage. A kernel that mounts it with
/// the same quotas need not count. Limits in existing quota files stay.
///
/// After a crash, the quotas are either complete, or the kernel counts at its first mount with quotas.
///
/// # Errors
/// - `Unsupported` or `Invalid` if the log contains changes, if the check finds damage, or for version 4.
/// - `NoSpace` or `NoInodes` if the files do not fit.
/// - `Corrupt` for a damaged superblock; `Device` if the device fails.
pub fn add_quotas(device: &Arc<dyn BlockDevice>, quotas: Quotas, time: Timestamp) -> Result<()> {
    let sb = read_superblock(&**device)?;
    if let Some(reason) = sb.read_only_because() {
        return Err(Error::unsupported(reason, "mount it with a kernel that supports it"));
    }
    crate::open::realtime::require_device(&**device)?;
    if !log_is_clean(&**device, &sb)? {
        return Err(Error::Invalid("its log must be replayed; run diskwright recover first"));
    }
    let counter = FindingCounter::default();
    let summary = crate::check::check(Arc::clone(device), &Options::default(), &counter)?;
    match counter.count() {
        0 if summary.is_complete => make(device, quotas, time, Way::Logged),
        found => Err(Error::unsupported(
            format!("adding quotas to an image with {found} findings of the check"),
            "run diskwright repair first",
        )),
    }
}

/// Changes of `sb_qflags`: what an image requests of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaFlags {
    /// Users, groups and projects whose accounting ends. Their quota files and limits stay.
    pub stops: [bool; 3],
    /// Kinds whose limits are enforced, or not any more.
    pub enforces: [Option<bool>; 3],
}

impl QuotaFlags {
    /// Returns changes of these kinds.
    pub const fn new(stops: [bool; 3], enforces: [Option<bool>; 3]) -> Self {
        Self { stops, enforces }
    }

    /// Returns the flags after the changes.
    fn applied(self, old: u16) -> Result<u16> {
        let mut flags = old;
        for kind in QuotaKind::ALL {
            let at = kind as usize;
            if self.stops[at] {
                flags &= !(kind.accounted() | kind.counted() | kind.enforced());
            }
            match self.enforces[at] {
                Some(true) if flags & kind.accounted() == 0 => {
                    return Err(Error::Invalid("limits of owners whose usage is not counted"));
                }
                Some(true) => flags |= kind.enforced(),
                Some(false) => flags &= !kind.enforced(),
                None => {}
            }
        }
        Ok(flags)
    }
}

/// Changes which quotas are accounted and enforced. The log must be empty.
///
/// Without a metadata directory, kernels take this from mount options. They need not count again if the kinds are the
/// same.
///
/// # Errors
/// `Unsupported` or `Invalid` if the log contains changes, for features that this build does not write, and if limits
/// shall be enforced without accounting: nothing was written then. `Device` if the device fails.
pub fn change_quota_flags(device: &Arc<dyn BlockDevice>, change: QuotaFlags) -> Result<()> {
    let sb = read_superblock(&**device)?;
    if let Some(reason) = sb.read_only_because() {
        return Err(Error::unsupported(reason, "mount it with a kernel that supports it"));
    }
    crate::open::realtime::require_device(&**device)?;
    if !log_is_clean(&**device, &sb)? {
        return Err(Error::Invalid("its log must be replayed; run diskwright recover first"));
    }
    change.applied(sb.raw.qflags.get())?;
    let fs = XfsCore::open_recovered(Arc::clone(device), &OpenOptions::default())?;
    // Opening may clear flags of kinds that cannot be counted.
    fs.edit_superblock(AgNumber(0), |raw| {
        let changed = change.applied(raw.qflags.get());
        changed.into_iter().for_each(|flags| raw.qflags = flags.into());
    })?;
    OpenImages::close(fs)
}

/// Like [`add_quotas`], for a new file system, without a check. It is written in place: after a crash it must be made
/// again.
///
/// # Errors
/// Returns the errors of [`add_quotas`].
pub fn make_quotas(device: &Arc<dyn BlockDevice>, quotas: Quotas, time: Timestamp) -> Result<()> {
    make(device, quotas, time, Way::InPlace)
}

fn make(device: &Arc<dyn BlockDevice>, quotas: Quotas, time: Timestamp, way: Way) -> Result<()> {
    let flags = quotas.flags();
    // While the records are written, no quota counts as counted.
    let fs = way.open(device)?;
    fs.edit_superblock(AgNumber(0), |raw| {
        raw.qflags = (raw.qflags.get() & !(flags & ALL_COUNTED)).into();
    })?;
    quotas.iter().try_for_each(|kind| fs.make_quota_file(kind, time))?;
    way.close(fs)?;
    let Some(usage) = view::view(Arc::clone(device), |view| view.usage())? else {
        return Err(Error::unsupported("quotas of a million owners", "let a kernel count them"));
    };
    let fs = way.open(device)?;
    let now = u64::try_from(time.sec).unwrap_or(0);
    for kind in quotas.iter() {
        if !fs.recount(kind, &usage[kind as usize], now)? {
            let damage = vfs::Corruption::new("quota file", "it cannot be used after its creation");
            return Err(damage.into());
        }
    }
    fs.engine.checkpoint()?;
    fs.edit_superblock(AgNumber(0), |raw| raw.qflags = (raw.qflags.get() | flags).into())?;
    way.close(fs)
}
