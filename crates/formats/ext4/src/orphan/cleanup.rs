//! Recovery of orphans after a crash: finding them, and freeing or truncating them.
//!
//! All on-disk records of orphans are read and checked before anything is written, so that an image with damage there
//! is rejected unchanged.

use operations::orphans;
use vfs::{Corruption, Error, FileType, Ino, Result};

use super::OrphanLocation;
use super::slots::{Slot, Slots};
use crate::Ext4Core;
use crate::alloc::bitmap;
use crate::format::address::{Block, FileBlock};
use crate::format::features::Compat;
use crate::format::group::GroupFlags;
use crate::format::orphan;
use crate::inode;
use crate::inode::Handle;
use crate::kind::BlockKind;
use crate::map;

/// Maximum number of blocks of an orphan file, as in the kernel.
const FILE_BLOCKS_MAX: u64 = 512;

/// Result of the orphan cleanup when [`crate::Ext4Core`] opened the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrphanReport {
    /// Number of inodes whose blocks past the size were freed.
    pub truncated: u32,
    /// Number of unlinked inodes that were freed.
    pub freed: u32,
}

/// Orphans of an image that is being opened, in processing order: those of the list, then those of the orphan file.
pub(crate) struct OrphanQueue(Vec<Ino>);

impl Ext4Core {
    /// Reads and checks the orphan file and the list. Writes nothing.
    ///
    /// # Errors
    /// `Corrupt` if the orphan file has a hole or a foreign block, if the list has a cycle, or if an inode cannot be an
    /// orphan.
    pub(crate) fn find_orphans(&self) -> Result<OrphanQueue> {
        let mut found = OrphanQueue(Vec::new());
        self.follow_list(&mut found)?;
        if self.volume.sb.features.compat(Compat::ORPHAN_FILE) {
            let slots = self.read_orphan_file(&mut found)?;
            // A file system is opened once, so the slots are not set yet.
            let _ = self.orphans.slots.set(slots);
        }
        Ok(found)
    }

    /// Frees or truncates the orphans that were found.
    pub(crate) fn clean_orphans(&self, found: &OrphanQueue) -> Result<()> {
        let mut report = OrphanReport::default();
        for &ino in &found.0 {
            if orphans::end_orphan(self, ino)? {
                report.freed += 1;
            } else {
                report.truncated += 1;
            }
        }
        let _ = self.orphans.cleaned.set(report);
        Ok(())
    }

    /// Returns the result of the orphan cleanup when the file system was opened for writing.
    pub fn cleaned_orphans(&self) -> OrphanReport {
        self.orphans.cleaned.get().copied().unwrap_or_default()
    }

    /// Follows the list. An orphan that occurs twice means a cycle.
    fn follow_list(&self, found: &mut OrphanQueue) -> Result<()> {
        let mut list = self.orphans.list.lock();
        let (mut ino, mut previous) = (self.volume.sb.raw.last_orphan.get(), 0);
        while ino != 0 {
            let handle = self.check_orphan(Ino(ino.into()), "orphan list")?;
            self.register(handle.ino(), OrphanLocation::List, "orphan list")?;
            list.append(ino, previous);
            found.0.push(handle.ino());
            (previous, ino) = (ino, handle.inode.dtime());
        }
        Ok(())
    }

    fn read_orphan_file(&self, found: &mut OrphanQueue) -> Result<Slots> {
        let ino = Ino(self.volume.sb.raw.orphan_file_inum.get().into());
        let file = self.load(ino).map_err(|e| match e {
            Error::NotFound => Corruption::new("superblock", "the orphan file is not in use")
                .of_inode(ino.0)
                .into(),
            other => other,
        })?;
        let places = self.orphan_blocks(&file)?;
        let per_block = orphan::slots_per_block(self.volume.block_size());
        let slots = Slots::new(file.owner, &places, per_block);
        for (block, &place) in places.iter().enumerate() {
            self.read_orphan_block(&slots, block as u32, place, found)?;
        }
        Ok(slots)
    }

    /// Returns the blocks of the orphan file, which are all different.
    fn orphan_blocks(&self, file: &Handle) -> Result<Vec<Block>> {
        let size = file.inode.size();
        let count = size >> self.volume.geometry.block_size_log;
        if file.file_type()? != FileType::Regular
            || !self.has_map(file)?
            || !(1..=FILE_BLOCKS_MAX).contains(&count)
            || !size.is_multiple_of(self.volume.block_size() as u64)
        {
            let damage = Corruption::new("orphan file", "not a file of whole blocks");
            let expected = format!("1 to {FILE_BLOCKS_MAX} blocks");
            let found = format!("{size} bytes, mode {:#o}", file.inode.mode());
            return Err(damage.of_inode(file.ino().0).mismatch(expected, found).into());
        }
        let mut places = Vec::with_capacity(count as usize);
        for block in 0..count as u32 {
            let map::Mapping::Written(place) =
                map::run_at(&mut &*self, file, FileBlock(block))?.place
            else {
                return Err(file.corrupt("orphan file", "it has a hole"));
            };
            places.push(place);
        }
        let mut sorted = places.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() < places.len() {
            return Err(file.corrupt("orphan file", "it has the same block twice"));
        }
        Ok(places)
    }

    fn read_orphan_block(
        &self,
        slots: &Slots,
        block: u32,
        place: Block,
        found: &mut OrphanQueue,
    ) -> Result<()> {
        let bytes = self.block(place, BlockKind::Orphan.of(slots.owner))?;
        // The checksum was verified when the block was read.
        let numbers = orphan::parse(&bytes, place, None)?;
        for (index, number) in numbers.iter().enumerate().filter(|(_, number)| **number != 0) {
            let ino = Ino(number.get().into());
            let slot = Slot { block, index: index as u32 };
            let at_place = |e| match e {
                Error::Corrupt(damage) => damage.at_block(place.0).into(),
                other => other,
            };
            self.check_orphan(ino, "orphan file").map_err(at_place)?;
            if ino == slots.owner.ino {
                return Err(Corruption::new("orphan file", "it lists itself")
                    .of_inode(ino.0)
                    .into());
            }
            self.register(ino, OrphanLocation::File(slot), "orphan file").map_err(at_place)?;
            slots.occupy(slot);
            found.0.push(ino);
        }
        Ok(())
    }

    fn register(&self, ino: Ino, place: OrphanLocation, structure: &'static str) -> Result<()> {
        if self.orphans.table.place(ino).is_some() {
            let damage = Corruption::new(structure, "an inode that is already listed");
            return Err(damage.of_inode(ino.0).into());
        }
        self.orphans.table.set_place(ino, Some(place));
        Ok(())
    }

    /// Reads an inode that is recorded as an orphan, and checks that it can be one.
    fn check_orphan(&self, ino: Ino, structure: &'static str) -> Result<Handle> {
        let damage = |problem| Corruption::new(structure, problem).of_inode(ino.0);
        let volume = &self.volume;
        let first = u64::from(volume.sb.first_ino);
        if !(first..=volume.geometry.inodes_count.into()).contains(&ino.0) {
            let range = format!("{first} to {}", volume.geometry.inodes_count);
            return Err(damage("an inode that cannot be an orphan").mismatch(range, ino.0).into());
        }
        let not_in_use = || Error::from(damage("an inode that is not in use"));
        let handle = inode::load_unlinked(self, ino).map_err(|e| match e {
            Error::NotFound => not_in_use(),
            other => other,
        })?;
        if !self.is_taken(ino)? {
            return Err(not_in_use());
        }
        // Only an inode with a block map can have an unfinished truncation.
        if handle.inode.links_count() > 0 && !self.has_map(&handle)? && !is_inline(&handle) {
            return Err(damage("an inode with links and nothing to truncate").into());
        }
        Ok(handle)
    }

    /// Returns whether an inode is in use according to the inode bitmap.
    fn is_taken(&self, ino: Ino) -> Result<bool> {
        let Some((group, index)) = self.volume.geometry.place_of(ino) else { return Ok(false) };
        let desc = self.volume.groups.places(group);
        if desc.flags.contains(GroupFlags::INODE_UNINIT) {
            return Ok(false);
        }
        let bytes = self.block(desc.inode_bitmap, BlockKind::InodeBitmap.of_group(group.0))?;
        Ok(bitmap::all_set(&bytes, index..index + 1))
    }
}

/// Returns whether the contents are inline. Such a truncation takes a single step.
fn is_inline(handle: &Handle) -> bool {
    handle.has_flag(crate::format::inode::flags::INLINE_DATA)
}
