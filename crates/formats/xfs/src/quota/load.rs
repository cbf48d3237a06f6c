//! Loading of quotas when an image is opened for writing.

use std::collections::BTreeMap;

use operations::Mode;
use vfs::{Error, FileType, Ino, Result};

use super::Quotas;
use super::ledger::{Limits, QuotaFile, RecordRun};
use crate::XfsCore;
use crate::format::address::{AgNumber, FileBlock};
use crate::format::features::{Incompat, Version};
use crate::format::inode::{Fork, flags};
use crate::format::log::dquot::DQUOT_BLOCK_SIZE;
use crate::format::metafile;
use crate::format::quota::{self, ALL_COUNTED, QuotaKind, Resource, is_record};
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map::{Place, run_at};

/// Maximum number of extents of a quota file that are kept in memory.
const RUNS_MAX: usize = 1 << 20;

impl XfsCore {
    /// Starts counting the kinds of quota that were counted, and clears the flags of those that cannot be counted here.
    /// If no kind can, all flags are cleared, as by kernels that mount without quotas. Kernels count again then.
    ///
    /// `is_exact` is false if the log contains changes whose usage was counted before.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn start_quotas(&self, is_exact: bool) -> Result<()> {
        let sb = &self.volume.sb;
        let old = sb.raw.qflags.get();
        if old & ALL_COUNTED == 0 || self.mode != Mode::Writable {
            return Ok(());
        }
        let features = &sb.features;
        let can_count =
            is_exact && features.crc() && features.version_bits.contains(Version::QUOTA);
        let mut files = [None, None, None];
        let mut new = old;
        for kind in QuotaKind::ALL {
            let needed = kind.accounted() | kind.counted();
            if can_count && old & needed == needed {
                files[kind as usize] = self.load_quota_file(kind)?;
            }
            if files[kind as usize].is_none() {
                new &= !kind.counted();
            }
        }
        let has_some = files.iter().any(Option::is_some);
        // With a metadata directory, kernels take the flags as options of the mount, so only those of counts are cleared.
        let is_kept = has_some || features.incompat(Incompat::METADIR);
        let new = if is_kept { new } else { 0 };
        if new != old {
            self.edit_superblock(AgNumber(0), |raw| raw.qflags = new.into())?;
        }
        if has_some {
            let _ = self.volume.quotas.set(Quotas::new(files, self.volume.block_size()));
        }
        Ok(())
    }

    /// Returns a quota file, or `None` if it is damaged.
    pub(super) fn load_quota_file(&self, kind: QuotaKind) -> Result<Option<QuotaFile>> {
        let found = self.quota_inode(kind).and_then(|found| match found {
            Some(handle) => self.read_quota_file(kind, handle),
            None => Ok(None),
        });
        match found {
            Err(Error::Corrupt(_) | Error::NotFound | Error::Unsupported(_)) => Ok(None),
            other => other,
        }
    }

    /// Returns the inode of a quota file: the one in the metadata directory, or that of the superblock. `None` if there
    /// is none, or two kinds have the same.
    fn quota_inode(&self, kind: QuotaKind) -> Result<Option<Handle>> {
        if self.metadir_root().is_some() {
            return self.metafile(&metafile::quota_path(kind));
        }
        let raw = &self.volume.sb.raw;
        let inodes = [raw.uquotino.get(), raw.gquotino.get(), raw.pquotino.get()];
        let ino = inodes[kind as usize];
        match inodes.iter().filter(|other| **other == ino).count() {
            1 => self.load(Ino(ino)).map(Some),
            _ => Ok(None),
        }
    }

    fn read_quota_file(&self, kind: QuotaKind, handle: Handle) -> Result<Option<QuotaFile>> {
        let ino = handle.ino();
        let is_plain = handle.file_type()? == FileType::Regular
            && handle.inode.flags() & flags::REALTIME == 0
            && !crate::map::may_share(&handle);
        let Some(runs) = is_plain.then(|| self.record_runs(&handle)).transpose()?.flatten() else {
            return Ok(None);
        };
        let is_enforced = self.volume.sb.raw.qflags.get() & kind.enforced() != 0;
        let mut file = QuotaFile::new(ino, runs, is_enforced);
        match self.read_limits(kind, &file, 0)? {
            Some(defaults) => file.defaults = defaults,
            None if file.block(0).is_some() => return Ok(None),
            None => {}
        }
        Ok(Some(file))
    }

    /// Returns the blocks of a quota file; `None` if some are unwritten, or there are too many extents.
    fn record_runs(&self, handle: &Handle) -> Result<Option<BTreeMap<u64, RecordRun>>> {
        let mut runs = BTreeMap::new();
        let mut at = FileBlock(0);
        while at < FileBlock::END {
            let run = run_at(&mut &*self, handle, Fork::Data, at)?;
            match run.place {
                Place::Hole => {}
                Place::Written(start) if runs.len() < RUNS_MAX => {
                    runs.insert(at.0, RecordRun { start, len: run.len });
                }
                _ => return Ok(None),
            }
            at = at.plus(run.len);
        }
        Ok(Some(runs))
    }

    /// Returns the limits and the usage in the record of an identifier; `None` without a valid record. Must not be
    /// called by a thread whose operation holds the record's block.
    pub(super) fn read_limits(
        &self,
        kind: QuotaKind,
        file: &QuotaFile,
        id: u32,
    ) -> Result<Option<Limits>> {
        let geometry = &self.volume.geometry;
        let per_block = quota::per_block(geometry.block_size());
        let at = id / per_block;
        let Some(place) = file.block(at) else { return Ok(None) };
        let tag = BlockKind::Dquots.of_inode(file.ino, at);
        let bytes = match self.block(geometry.device_block(place), tag) {
            Ok(bytes) => bytes,
            Err(Error::Corrupt(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let start = (id % per_block) as usize * DQUOT_BLOCK_SIZE;
        let record = &bytes[start..start + DQUOT_BLOCK_SIZE];
        let limits = || Resource::ALL.map(|resource| quota::read(record, resource));
        Ok(is_record(kind, id, record).then(limits))
    }
}
