//! Making quota files, and rewriting their records with counted usage.
//!
//! Only when nothing else uses the file system: usage must not change between the counting and the writing.

use std::collections::BTreeMap;

use operations::RunOperations;
use operations::names::LinkEffects;
use vfs::{Corruption, FileType, Ino, Result, Timestamp};

use super::ledger::{QuotaFile, RecordRun};
use crate::XfsCore;
use crate::format::address::{AgNumber, FileBlock, FsBlock};
use crate::format::checksum;
use crate::format::features::{Incompat, Version};
use crate::format::inode::{Fork, Time};
use crate::format::log::dquot::{CRC_OFFSET, DQUOT_BLOCK_SIZE};
use crate::format::metafile::{MetafileType, QUOTA_DIRECTORY};
use crate::format::quota::{self, Counts, QuotaKind, Resource, UsageById, init_block};
use crate::format::superblock::RawSuperblock;
use crate::kind::BlockKind;

/// Owners with usage in one block of records.
type Owners<'u> = Vec<(u32, &'u Counts)>;

/// Sets the inode number of a quota file.
fn name_file(raw: &mut RawSuperblock, kind: QuotaKind, ino: Ino) {
    let fields = [&mut raw.uquotino, &mut raw.gquotino, &mut raw.pquotino];
    for (of, field) in QuotaKind::ALL.into_iter().zip(fields) {
        if of == kind {
            *field = ino.0.into();
        } else if field.get() == 0 {
            *field = u64::MAX.into();
        }
    }
    raw.versionnum = (raw.versionnum.get() | Version::QUOTA.bits()).into();
}

impl XfsCore {
    /// Makes an empty quota file, unless there is a usable one. The superblock in memory does not change: open the file
    /// system again before the file is used.
    ///
    /// # Errors
    /// `NoSpace`, `NoInodes`; `Corrupt` for a damaged metadata directory; errors of the device.
    pub(crate) fn make_quota_file(&self, kind: QuotaKind, time: Timestamp) -> Result<()> {
        if self.load_quota_file(kind)?.is_some() {
            return Ok(());
        }
        match self.metadir_root() {
            Some(root) => self.make_quota_metafile(kind, root, time),
            None => self.make_plain_quota_file(kind, time),
        }
    }

    /// Makes a file that only the superblock names.
    fn make_plain_quota_file(&self, kind: QuotaKind, time: Timestamp) -> Result<()> {
        let root = self.load(self.root_ino())?;
        self.atomically(|op| {
            let mut handle = op.allocate_inode(&root, false)?;
            let inode = &mut handle.inode;
            // It has no parent pointers, so it needs no attribute fork.
            inode.set_mode(FileType::Regular, 0);
            inode.set_nlink(1);
            for which in [Time::Access, Time::Change, Time::Modify, Time::Create] {
                inode.set_time(which, time);
            }
            let ino = handle.ino();
            op.stage(handle);
            self.edit_superblock_in(&mut op.txn, AgNumber(0), |raw| name_file(raw, kind, ino))?;
            Ok(())
        })
    }

    /// Makes a file in the metadata directory, and its directory if that is missing.
    fn make_quota_metafile(&self, kind: QuotaKind, root: Ino, time: Timestamp) -> Result<()> {
        let directory = self.metafile(QUOTA_DIRECTORY)?;
        let root = self.load(root)?;
        self.atomically(|op| {
            let mut dir = match &directory {
                Some(found) => found.clone(),
                None => {
                    let mut parent = root.clone();
                    self.add_subdirectory(&mut parent)?;
                    let name = QUOTA_DIRECTORY.as_bytes();
                    let made =
                        op.make_metafile(&mut parent, name, MetafileType::Directory, time)?;
                    op.stage(parent);
                    made
                }
            };
            let name = kind.name().as_bytes();
            let file = op.make_metafile(&mut dir, name, MetafileType::of_quota(kind), time)?;
            op.stage(dir);
            op.stage(file);
            let at = AgNumber(0);
            self.edit_superblock_in(&mut op.txn, at, |raw| {
                raw.versionnum = (raw.versionnum.get() | Version::QUOTA.bits()).into();
            })?;
            Ok(())
        })
    }

    /// Sets the usage in the records of a quota file, and keeps their limits. Owners without a record get one. Returns
    /// false if there is no usable file. `now` is in seconds since the epoch.
    ///
    /// # Errors
    /// `NoSpace` if the file cannot grow, `Corrupt` for damaged records, errors of the device.
    pub(crate) fn recount(&self, kind: QuotaKind, usage: &UsageById, now: u64) -> Result<bool> {
        let Some(file) = self.load_quota_file(kind)? else { return Ok(false) };
        let per_block = quota::per_block(self.volume.block_size());
        let mut blocks: BTreeMap<u32, Owners<'_>> = BTreeMap::new();
        for (&id, counts) in usage {
            blocks.entry(id / per_block).or_default().push((id, counts));
        }
        let runs = file.runs.lock().clone();
        for (first, run) in runs {
            for nth in 0..run.len {
                let Ok(at) = u32::try_from(first + nth) else {
                    let damage = Corruption::new("quota file", "blocks past all identifiers");
                    return Err(damage.of_inode(file.ino.0).into());
                };
                let owners = blocks.remove(&at).unwrap_or_default();
                self.set_usage((kind, &file), at, run.start.plus(nth), (&owners, now))?;
            }
        }
        for (at, owners) in blocks {
            let start = self.append_records(kind, &file, at)?;
            file.runs.lock().insert(at.into(), RecordRun { start, len: 1 });
            self.set_usage((kind, &file), at, start, (&owners, now))?;
        }
        Ok(true)
    }

    /// Adds a block of empty records to a quota file.
    pub(super) fn append_records(
        &self,
        kind: QuotaKind,
        file: &QuotaFile,
        at: u32,
    ) -> Result<FsBlock> {
        let geometry = &self.volume.geometry;
        let before = self.load(file.ino)?;
        let first = at.wrapping_mul(quota::per_block(geometry.block_size()));
        self.atomically(|op| {
            let mut handle = before.clone();
            let start = op.map_new(&mut handle, Fork::Data, FileBlock(at.into()), 1)?;
            let tag = BlockKind::Dquots.of_inode(file.ino, at);
            let buffer = op.txn.create(geometry.device_block(start).0, tag)?;
            let bytes = op.txn.edit(buffer, 0..geometry.block_size());
            let has_bigtime = geometry.features.incompat(Incompat::BIGTIME);
            init_block(kind, first, has_bigtime, &geometry.meta_uuid, bytes);
            op.stage(handle);
            Ok(start)
        })
    }

    /// Sets the usage in a block of records. All others have none.
    fn set_usage(
        &self,
        (kind, file): (QuotaKind, &QuotaFile),
        at: u32,
        place: FsBlock,
        (owners, now): (&Owners<'_>, u64),
    ) -> Result<()> {
        let geometry = &self.volume.geometry;
        let tag = BlockKind::Dquots.of_inode(file.ino, at);
        let place = geometry.device_block(place);
        let first = at.wrapping_mul(quota::per_block(geometry.block_size()));
        let mut bytes = self.block(place, tag)?.to_vec();
        let mut changed = Vec::new();
        for (nth, record) in (0..).zip(bytes.chunks_exact_mut(DQUOT_BLOCK_SIZE)) {
            let id = first.wrapping_add(nth);
            let counts = owners.iter().find(|(owner, _)| *owner == id);
            let counts = counts.map_or_else(Counts::default, |(_, counts)| **counts);
            if !quota::is_record(kind, id, record) {
                let damage = Corruption::new("quota file", "a record of another owner");
                return Err(damage.of_inode(file.ino.0).at_block(place.0).into());
            }
            if set_counts(file, (id, counts, now), record) {
                changed.push(nth as usize * DQUOT_BLOCK_SIZE);
            }
        }
        if changed.is_empty() {
            return Ok(());
        }
        self.atomically(|op| {
            let buffer = op.buffer(place, tag)?;
            for &start in &changed {
                let range = start..start + DQUOT_BLOCK_SIZE;
                op.txn.edit(buffer, range.clone()).copy_from_slice(&bytes[range]);
            }
            Ok(())
        })
    }
}

/// Sets the usage in a record. Returns whether it changed.
fn set_counts(file: &QuotaFile, (id, counts, now): (u32, Counts, u64), record: &mut [u8]) -> bool {
    let mut is_changed = false;
    for (resource, count) in Resource::ALL.into_iter().zip(counts) {
        let old = quota::read(record, resource);
        let mut new = quota::Quota { count, ..old };
        // As kernels do, records without usage get no default limits.
        if counts != Counts::default() || count != old.count {
            file.adjust(id, resource, &mut new, now);
        }
        if new != old {
            quota::write(record, resource, &new);
            is_changed = true;
        }
    }
    if is_changed {
        checksum::seal(record, CRC_OFFSET);
    }
    is_changed
}
