//! Changes of a valid file system that are not caused by findings, made in a staging: adding and removing the file
//! system's own files, and changing the kind of checksums. Their consequences (bitmaps, counts, copies) are repaired
//! afterwards.
//!
//! Each function reads the superblock from the staging again, and leaves a superblock with a valid checksum.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use disk::{BlockDevice, DeviceRole};
use operations::repair::Staging;
use vfs::check::{Finding, FindingList, Options};
use vfs::{Error, Result, Timestamp};
use zerocopy::{FromBytes, IntoBytes};

use super::files::reseal;
use super::image::StagedImage;
use super::journal::write_inode;
use super::system_files::make_file;
use super::{RepairJob, fields, quota, resize};
use crate::check::{InUse, find_in_use};
use crate::format::address::{Block, Group};
use crate::format::features::Incompat;
use crate::format::group::{GroupFlags, block_bitmap_checksum, inode_bitmap_checksum};
use crate::format::inode::{Inode, Time};
use crate::format::jbd2::{JournalIncompat, RawJournalSuperblock};
use crate::format::mmp::{self, RawMmp};
use crate::format::superblock::{
    RawSuperblock, STATE_VALID, SUPERBLOCK_SIZE, Superblock, backup_number,
};
use crate::format::{jbd2, orphan};
use crate::log::{self, JOURNAL_INO, JournalMap};
use crate::mkfs::journal::{self as journal_size, NewJournal};
use crate::params::Params;

/// Inodes of the quota files of users and groups.
const QUOTA_INOS: [u32; 2] = [3, 4];

/// A staging with changes.
pub(crate) struct Changes {
    staging: Arc<Staging>,
    /// Byte ranges of free or never used space that must be zeroed before the changes are written.
    pub(crate) zeros: Vec<Range<u64>>,
}

fn device(error: io::Error) -> Error {
    Error::Device(error)
}

/// Sets all times of an inode.
fn set_times(image: &StagedImage<'_>, ino: u32, time: Timestamp) -> io::Result<()> {
    let Some(mut slot) = image.slot(ino)? else { return Ok(()) };
    let mut inode = Inode::from_slot(&slot);
    for which in [Time::Access, Time::Change, Time::Modify] {
        inode.set_time(which, time);
    }
    inode.set_crtime(time);
    let len = inode.as_bytes().len().min(slot.len());
    slot[..len].copy_from_slice(&inode.as_bytes()[..len]);
    image.write_slot(ino, slot)
}

fn not_there() -> Error {
    Error::Invalid("the image has no superblock")
}

impl Changes {
    pub(crate) fn new(staging: Arc<Staging>) -> Self {
        Self { staging, zeros: Vec::new() }
    }

    fn image(&self) -> Result<StagedImage<'_>> {
        StagedImage::of(&self.staging).ok_or_else(not_there)
    }

    fn job(&self) -> RepairJob {
        let (staging, options) = (Arc::clone(&self.staging), Options::default());
        RepairJob { staging, options, is_all_known: true }
    }

    /// Calls `change` with a survey of all inodes.
    fn with_in_use<R>(&self, change: impl FnOnce(&InUse<'_>) -> Result<R>) -> Result<R> {
        let found = find_in_use(self.staging.clone() as _, &Options::default(), change)?;
        found.ok_or_else(not_there)?
    }

    /// Changes the primary superblock.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn edit_superblock(&self, change: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        self.image()?.edit_superblock(change).map_err(device)
    }

    fn clear_inode(&self, ino: u32) -> Result<()> {
        let image = self.image()?;
        let size = usize::from(image.params.geometry.inode_size);
        image.write_slot(ino, vec![0; size]).map_err(device)
    }

    /// Creates an empty journal as requested. An area for fast commits of a requested size is added to its size.
    ///
    /// # Errors
    /// `Invalid` for an impossible size; `NoSpace` if the free space is too small or too fragmented.
    pub(crate) fn make_journal(&mut self, request: &NewJournal) -> Result<()> {
        let image = self.image()?;
        let geometry = image.params.geometry;
        let free = image.params.sb.raw.free_blocks();
        let len = match request.bytes {
            Some(bytes) => journal_size::blocks_of(bytes, &geometry, free)?,
            None => journal_size::default_blocks(&geometry),
        };
        let fast = request.fast_commit_bytes.unwrap_or(0) >> geometry.block_size_log;
        let len = u32::try_from(fast).ok().and_then(|fast| len.checked_add(fast));
        let len = len.filter(|len| u64::from(*len) <= free);
        let len = len.ok_or(Error::Invalid("the area for fast commits is too large"))?;
        let goal = request.position.map(|position| position.block(geometry.block_size_log));
        if goal.is_some_and(|goal| goal >= geometry.blocks_count) {
            return Err(Error::Invalid("the location of the journal is after the last block"));
        }
        let size = u64::from(len) << geometry.block_size_log;
        let mapped = self.with_in_use(|in_use| {
            make_file(&image, in_use, JOURNAL_INO, (len.into(), goal), |_, _| None).map_err(device)
        })?;
        let mapped = mapped.ok_or(Error::NoSpace)?;
        let uuid = image.params.sb.raw.uuid;
        let header = RawJournalSuperblock::empty(geometry.block_size(), len, uuid);
        let mut first = vec![0; image.block_size()];
        first[..header.as_bytes().len()].copy_from_slice(header.as_bytes());
        let place = mapped.blocks().next().ok_or(Error::NoSpace)?;
        image.write(place, &first).map_err(device)?;
        // The block count of the created inode includes map blocks.
        let slot = image.slot(JOURNAL_INO).map_err(device)?;
        let root = (mapped.i_block, size, image.params.extents);
        write_inode(&image, JOURNAL_INO, root).map_err(device)?;
        if let Some(slot) = slot {
            image.write_slot(JOURNAL_INO, slot).map_err(device)?;
        }
        let byte = |block: u64| geometry.byte_of(Block(block));
        let zeros: Vec<_> = mapped.data.iter().map(|run| byte(run.start)..byte(run.end)).collect();
        self.zeros.extend(zeros);
        self.edit_superblock(|raw| {
            if raw.overhead_clusters != 0 {
                raw.overhead_clusters = raw.overhead_clusters.get().saturating_add(len).into();
            }
        })
    }

    /// Removes the journal, which must be empty.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn remove_journal(&self) -> Result<()> {
        let image = self.image()?;
        let sb = &image.params.sb;
        if sb.has_external_journal() {
            return self.detach_journal(sb);
        }
        let ino = sb.raw.journal_inum.get();
        let blocks = JournalMap::read(&*self.staging, sb)?.map_or(0, |m| m.blocks());
        if ino != 0 {
            self.clear_inode(ino)?;
        }
        self.edit_superblock(|raw| {
            raw.journal_inum = 0.into();
            raw.journal_dev = 0.into();
            raw.journal_uuid = [0; 16];
            raw.overhead_clusters = raw.overhead_clusters.get().saturating_sub(blocks).into();
        })
    }

    /// Ends the use of a journal on another device, which may be missing.
    fn detach_journal(&self, sb: &Superblock) -> Result<()> {
        if self.staging.part_len(DeviceRole::Log).is_some() {
            log::set_user(&*self.staging, sb, None)?;
        }
        self.edit_superblock(|raw| {
            raw.journal_dev = 0.into();
            raw.journal_uuid = [0; 16];
        })
    }

    /// Uses the journal on another device, which no other file system uses. `number` is its device number, or 0.
    ///
    /// # Errors
    /// Like [`log::free_device`].
    pub(crate) fn attach_journal(&self, number: u32) -> Result<()> {
        let image = self.image()?;
        let sb = &image.params.sb;
        let journal = log::free_device(&*self.staging, sb.block_size(), Some(sb.raw.uuid))?;
        let uuid = journal.raw.uuid;
        self.edit_superblock(|raw| {
            raw.journal_inum = 0.into();
            raw.jnl_backup_type = 0;
            raw.jnl_blocks = [0.into(); 17];
            raw.journal_dev = number.into();
            raw.journal_uuid = uuid;
        })?;
        self.name_journal_user()
    }

    /// Records the UUID of the image in the journal on another device.
    ///
    /// # Errors
    /// If the device is missing or damaged.
    pub(crate) fn name_journal_user(&self) -> Result<()> {
        let image = self.image()?;
        let sb = &image.params.sb;
        log::set_user(&*self.staging, sb, Some(sb.raw.uuid))
    }

    /// Changes the superblock of the journal.
    ///
    /// # Errors
    /// `Corrupt` if it is damaged; if the device fails.
    pub(crate) fn edit_journal(
        &self,
        change: impl FnOnce(&mut RawJournalSuperblock),
    ) -> Result<()> {
        let image = self.image()?;
        let map = JournalMap::read(&*self.staging, &image.params.sb)?;
        let place = map.and_then(|map| map.place_of(map.superblock()));
        let Some((place, _)) = place else { return Ok(()) };
        let mut block = vec![0; image.block_size()];
        self.staging.read_at(place, &mut block).map_err(device)?;
        let mut raw = RawJournalSuperblock::parse(&block)?;
        change(&mut raw);
        raw.seal();
        self.staging.write_at(place, raw.as_bytes()).map_err(device)
    }

    /// Enables fast commits of the journal, with an area of `blocks` blocks or of the default size, or disables them.
    ///
    /// # Errors
    /// Like [`Self::edit_journal`].
    pub(crate) fn set_fast_commits(&self, is_on: bool, bytes: Option<u64>) -> Result<()> {
        let log = self.image()?.params.geometry.block_size_log;
        let blocks = bytes.and_then(|bytes| u32::try_from(bytes >> log).ok());
        let blocks = blocks.unwrap_or(jbd2::FAST_COMMIT_BLOCKS_DEFAULT);
        self.edit_journal(|raw| {
            raw.upgrade();
            let blocks = if is_on { blocks } else { 0 };
            raw.num_fc_blks = blocks.into();
            let mut incompat = raw.incompat();
            incompat.remove(JournalIncompat::FAST_COMMIT);
            raw.set_features(raw.compat(), incompat);
        })
    }

    /// Creates an empty orphan file of `blocks` blocks, or of the default size.
    ///
    /// # Errors
    /// `NoSpace` or `NoInodes` if nothing is free.
    pub(crate) fn make_orphan_file(&mut self, blocks: Option<u64>) -> Result<()> {
        let usual = (self.image()?.params.geometry.blocks_count / 4096).clamp(32, 512);
        let old = self.image()?.params.sb.raw.orphan_file_inum.get();
        let ino = if old == 0 { self.take_inode()? } else { old };
        let image = self.image()?;
        let empty = |_, place: Block| {
            let mut bytes = vec![0; image.block_size()];
            orphan::seal(&mut bytes, place, image.seed(ino, 0));
            Some(bytes)
        };
        let made = self.with_in_use(|in_use| {
            make_file(&image, in_use, ino, (blocks.unwrap_or(usual), None), empty).map_err(device)
        })?;
        made.ok_or(Error::NoSpace)?;
        self.edit_superblock(|raw| raw.orphan_file_inum = ino.into())
    }

    /// Removes the orphan file, which must be empty.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn remove_orphan_file(&self) -> Result<()> {
        let ino = self.image()?.params.sb.raw.orphan_file_inum.get();
        self.clear_inode(ino)?;
        self.edit_superblock(|raw| raw.orphan_file_inum = 0.into())
    }

    /// Creates a quota file with the counted usage. `kind` is 0 for users, 1 for groups, 2 for projects.
    ///
    /// # Errors
    /// `NoSpace` or `NoInodes` if nothing is free.
    pub(crate) fn make_quota_file(&mut self, kind: usize, time: Option<Timestamp>) -> Result<()> {
        let ino = match QUOTA_INOS.get(kind) {
            Some(ino) => *ino,
            None => self.take_inode()?,
        };
        self.edit_superblock(|raw| *quota_field(raw, kind) = ino.into())?;
        quota::make(&self.job(), &self.image()?, ino, &[])?;
        let image = self.image()?;
        let is_made = quota_field(&mut image.params.sb.raw.clone(), kind).get() == ino;
        if !is_made {
            return Err(Error::NoSpace);
        }
        time.map_or(Ok(()), |time| set_times(&image, ino, time).map_err(device))
    }

    /// Removes a quota file, if there is one.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn remove_quota_file(&self, kind: usize) -> Result<()> {
        let ino = quota_field(&mut self.image()?.params.sb.raw.clone(), kind).get();
        if ino != 0 {
            self.clear_inode(ino)?;
        }
        self.edit_superblock(|raw| *quota_field(raw, kind) = 0.into())
    }

    /// Frees the blocks reserved for descriptors.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn remove_resize_inode(&self) -> Result<()> {
        resize::turn_off(&self.image()?).map_err(device)
    }

    /// Finds the first free inode that is not reserved, and extends the used part of its group's inode table to include
    /// it.
    fn take_inode(&mut self) -> Result<u32> {
        let image = self.image()?;
        let (geometry, sb) = (image.params.geometry, &image.params.sb);
        let found = self.with_in_use(|in_use| {
            Ok(geometry.groups().find_map(|group| {
                let bits = in_use.inode_bitmap(group);
                let is_free = |at: &u32| bits[*at as usize / 8] >> (at % 8) & 1 == 0;
                let index = (0..geometry.inodes_per_group).find(is_free)?;
                Some((group, index, in_use.inodes_read(group)))
            }))
        })?;
        let (group, index, read) = found.ok_or(Error::NoInodes)?;
        let size = usize::from(geometry.inode_size);
        if index >= read && sb.features.group_csum() {
            let mut desc = image.descriptor(group).map_err(device)?;
            desc.flags.remove(GroupFlags::INODE_UNINIT);
            desc.itable_unused = geometry.inodes_per_group - (index + 1);
            image.write_descriptor(group, &desc).map_err(device)?;
            for at in read..=index {
                let ino = geometry.ino_of(group, at).0 as u32;
                image.write_slot(ino, vec![0; size]).map_err(device)?;
            }
        }
        Ok(geometry.ino_of(group, index).0 as u32)
    }

    /// Writes uninitialised bitmaps and inode tables, because descriptors lose their checksums. Notes the parts of
    /// tables to zero before the changes are written.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn initialise_groups(&mut self) -> Result<()> {
        let image = self.image()?;
        let geometry = image.params.geometry;
        let mut zeros = Vec::new();
        self.with_in_use(|in_use| {
            for group in geometry.groups() {
                initialise_group(&image, in_use, group, &mut zeros).map_err(device)?;
            }
            Ok(())
        })?;
        self.zeros.extend(zeros);
        Ok(())
    }

    /// Rewrites all checksums for the superblock that `change` makes: another kind, another seed, or none.
    ///
    /// # Errors
    /// `NoSpace` if a directory has no room for checksums; if the device fails.
    pub(crate) fn change_checksums(
        &mut self,
        change: impl FnOnce(&mut RawSuperblock),
    ) -> Result<()> {
        let mut raw = self.image()?.params.sb.raw.clone();
        change(&mut raw);
        raw.seal();
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        let sb = crate::format::superblock::Superblock::parse(&bytes, self.staging.len())?;
        let new = Params::of(sb);
        let full = reseal::reseal(&self.staging, &new)?;
        self.edit_superblock(|old| *old = raw.clone())?;
        self.reseal_groups()?;
        self.reseal_mmp()?;
        if !new.checksums {
            self.edit_journal(|raw| {
                let mut incompat = raw.incompat();
                incompat.remove(JournalIncompat::CSUM_V2 | JournalIncompat::CSUM_V3);
                raw.set_features(raw.compat(), incompat);
                raw.checksum_type = 0;
                raw.checksum = 0.into();
            })?;
        }
        if full.is_empty() { Ok(()) } else { reseal::rewrite_directories(&self.job(), &full) }
    }

    /// Recomputes the checksums of bitmaps and descriptors.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn reseal_groups(&self) -> Result<()> {
        let image = self.image()?;
        let (sb, has_sums) = (&image.params.sb, image.params.checksums);
        for group in image.params.geometry.groups() {
            let mut desc = image.descriptor(group).map_err(device)?;
            (desc.block_bitmap_csum, desc.inode_bitmap_csum) = (0, 0);
            if has_sums && !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
                let bitmap = image.block(desc.block_bitmap).map_err(device)?;
                desc.block_bitmap_csum = block_bitmap_checksum(&bitmap, sb);
            }
            if has_sums && !desc.flags.contains(GroupFlags::INODE_UNINIT) {
                let bitmap = image.block(desc.inode_bitmap).map_err(device)?;
                desc.inode_bitmap_csum = inode_bitmap_checksum(&bitmap, sb);
            }
            image.write_descriptor(group, &desc).map_err(device)?;
        }
        Ok(())
    }

    fn reseal_mmp(&self) -> Result<()> {
        let image = self.image()?;
        let sb = &image.params.sb;
        if !sb.features.incompat(Incompat::MMP) {
            return Ok(());
        }
        let place = Block(sb.raw.mmp_block.get());
        let mut bytes = image.block(place).map_err(device)?;
        let Ok((raw, _)) = RawMmp::mut_from_prefix(&mut bytes) else { return Ok(()) };
        raw.seal(image.params.checksums.then_some(sb.checksum_seed));
        image.write(place, &bytes).map_err(device)
    }

    /// Returns whether the MMP block says that no host uses the file system.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn is_mmp_clean(&self) -> Result<bool> {
        let image = self.image()?;
        let bytes = image.block(Block(image.params.sb.raw.mmp_block.get())).map_err(device)?;
        let raw = RawMmp::parse(&bytes, None);
        Ok(raw.is_ok_and(|raw| raw.seq == mmp::SEQUENCE_CLEAN))
    }

    /// Writes the MMP block of a file system that is not mounted.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn clear_mmp(&self) -> Result<()> {
        let image = self.image()?;
        let place = Block(image.params.sb.raw.mmp_block.get());
        image.write(place, &fields::mmp_block(&image)).map_err(device)
    }

    /// Repairs the consequences of the changes: findings with the codes in `expected`.
    ///
    /// # Errors
    /// `Unsupported` if the check finds anything else; the changes must not be written then.
    pub(crate) fn settle(&self, expected: &[&'static vfs::check::Code]) -> Result<()> {
        const ROUNDS_MAX: u32 = 64;
        let job = self.job();
        self.staging.end_step(Vec::new()).map_err(device)?;
        for _ in 0..ROUNDS_MAX {
            let findings = self.find()?;
            if findings.is_empty() {
                return Ok(());
            }
            if let Some(other) = findings.iter().find(|f| !expected.contains(&f.code)) {
                return Err(refused(other));
            }
            let before = self.staging.step_count();
            operations::repair::repair_lowest(&self.staging, &job, super::LEVELS, &findings)?;
            if self.staging.step_count() == before {
                break;
            }
        }
        self.find()?.first().map_or(Ok(()), |finding| Err(refused(finding)))
    }

    fn find(&self) -> Result<Vec<Finding>> {
        let found = FindingList::default();
        crate::check::check(self.staging.clone() as _, &Options::default(), &found)?;
        Ok(found.into_findings())
    }

    /// Rewrites all copies of superblock and descriptors.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn write_copies(&self) -> Result<()> {
        let image = self.image()?;
        let geometry = &image.params.geometry;
        for holder in geometry.groups().skip(1) {
            let (indexes, start) = geometry.gdt_copy_in(holder);
            for (index, place) in indexes.zip((start.0..).map(Block)) {
                if place != geometry.gdt_block(index) {
                    let table = image.block(geometry.gdt_block(index)).map_err(device)?;
                    image.write(place, &table).map_err(device)?;
                }
            }
            let Some(place) = geometry.superblock_of(holder) else { continue };
            let mut raw = image.params.sb.raw.clone();
            raw.block_group_nr = backup_number(holder).into();
            raw.state = (raw.state.get() & !STATE_VALID).into();
            raw.seal();
            image.write(place, raw.as_bytes()).map_err(device)?;
        }
        Ok(())
    }
}

fn refused(finding: &Finding) -> Error {
    let detail = finding.detail.as_deref().unwrap_or(finding.code.meaning);
    Error::unsupported(
        format!("the change with the contents of this image ({}: {detail})", finding.code.name),
        "the image is unchanged; remove what needs the feature first",
    )
}

/// Returns the superblock field with the inode of a quota file.
fn quota_field(raw: &mut RawSuperblock, kind: usize) -> &mut zerocopy::little_endian::U32 {
    match kind {
        0 => &mut raw.usr_quota_inum,
        1 => &mut raw.grp_quota_inum,
        _ => &mut raw.prj_quota_inum,
    }
}

/// Writes the bitmaps of a group according to the blocks and inodes in use. Notes the part of its inode table that must
/// be zeroed.
fn initialise_group(
    image: &StagedImage<'_>,
    in_use: &InUse<'_>,
    group: Group,
    zeros: &mut Vec<Range<u64>>,
) -> io::Result<()> {
    let mut desc = image.descriptor(group)?;
    let geometry = &image.params.geometry;
    if desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
        image.write(desc.block_bitmap, &in_use.block_bitmap(group))?;
    }
    if desc.flags.contains(GroupFlags::INODE_UNINIT) {
        image.write(desc.inode_bitmap, &in_use.inode_bitmap(group))?;
    }
    let (size, all) = (u64::from(geometry.inode_size), geometry.inodes_per_group);
    let table = geometry.byte_of(desc.inode_table);
    let unused = u64::from(in_use.inodes_read(group))..u64::from(all);
    if !unused.is_empty() && !desc.flags.contains(GroupFlags::INODE_ZEROED) {
        zeros.push(table + unused.start * size..table + unused.end * size);
    }
    desc.flags = GroupFlags::empty();
    desc.itable_unused = 0;
    image.write_descriptor(group, &desc)
}
