//! Updates the checksums of inodes and of everything that they own for another superblock: another kind, another seed,
//! or none. Directories whose blocks have no room for a checksum are rewritten.

use std::collections::BTreeSet;
use std::sync::Arc;

use operations::repair::Staging;
use vfs::check::{Finding, Options};
use vfs::{Error, Ino, Result};

use super::directories;
use super::inode_draft::InodeDraft;
use super::map::Map;
use crate::check::checked_image::CheckedImage;
use crate::check::codes::DIR_CHECKSUM;
use crate::format::address::Block;
use crate::format::checksum::inode_seed;
use crate::format::dirent::{self, TAIL_SIZE};
use crate::format::htree::{self, Index, IndexKind, RootInfo};
use crate::format::inode::{self, flags};
use crate::format::{extent, orphan, xattr};
use crate::params::Params;
use crate::repair::RepairJob;

/// Inode of the bad block list.
const BAD_BLOCKS_INO: u32 = 1;
/// Size of the hash after a name that is encrypted and case-insensitive, in bytes.
const KEYED_HASH_SIZE: usize = 8;

/// Writes the checksums of inodes and of all their blocks for the superblock `new`. `staging` contains the old
/// superblock. Returns the directories that must be rewritten with [`rewrite_directories`] once the new superblock is
/// written.
///
/// # Errors
/// If the device fails.
pub(crate) fn reseal(staging: &Arc<Staging>, new: &Params) -> Result<BTreeSet<u32>> {
    let options = Options::default();
    let mut full = BTreeSet::new();
    let Some(checked) = CheckedImage::open(Arc::clone(staging) as _, &options)? else {
        return Ok(full);
    };
    let work = ResealContext { staging, checked: &checked, new };
    let mut result = Ok(());
    checked.for_each_slot(&mut |ino, slot| {
        if result.is_ok() && slot.iter().any(|&byte| byte != 0) {
            result = work.inode(ino, slot, &mut full);
        }
    });
    result.map(|()| full)
}

/// Rewrites directories with room for checksums. Names may move to other blocks.
///
/// # Errors
/// If the device fails.
pub(crate) fn rewrite_directories(job: &RepairJob, inos: &BTreeSet<u32>) -> Result<()> {
    let of_inode = |ino: &u32| Finding::new(DIR_CHECKSUM).of_inode(u64::from(*ino));
    let findings: Vec<Finding> = inos.iter().map(of_inode).collect();
    directories::repair(job, &findings.iter().collect::<Vec<_>>())
}

struct ResealContext<'w> {
    staging: &'w Staging,
    checked: &'w CheckedImage,
    new: &'w Params,
}

impl ResealContext<'_> {
    fn inode(&self, ino: u32, slot: &[u8], full: &mut BTreeSet<u32>) -> Result<()> {
        let Some(subject) = InodeDraft::read(self.checked, ino) else { return Ok(()) };
        let generation = subject.inode.generation();
        let seed = self
            .new
            .checksums
            .then(|| inode_seed(self.new.sb.checksum_seed, Ino(ino.into()), generation));
        if let (Some(seed), Some(place)) = (seed, self.checked.slot_place(ino)) {
            let mut slot = slot.to_vec();
            inode::seal_slot(seed, &mut slot);
            self.staging.write_at_place(place, &slot)?;
        }
        let is_used = subject.inode.file_type().is_some()
            && (subject.inode.links_count() > 0 || self.checked.is_orphan(ino));
        if !is_used && ino != BAD_BLOCKS_INO {
            return Ok(());
        }
        self.attributes(Block(subject.inode.file_acl()))?;
        let map = Map::read(self.checked, &subject);
        if subject.has(flags::EXTENTS) {
            for node in &map.nodes {
                self.change(*node, |bytes| seed.into_iter().for_each(|s| extent::seal(bytes, s)))?;
            }
        }
        if ino == self.new.sb.raw.orphan_file_inum.get() {
            for place in places(&map, u64::MAX) {
                self.change(place, |bytes| orphan::seal(bytes, place, seed))?;
            }
        }
        let has_blocks = subject.inode.is_dir() && !subject.has(flags::INLINE_DATA);
        if has_blocks && !self.directory(&subject, &map, seed)? {
            full.insert(ino);
        }
        Ok(())
    }

    fn attributes(&self, place: Block) -> Result<()> {
        if place.0 == 0 || !self.checked.can_be_of_file(place, 1) || !self.new.checksums {
            return Ok(());
        }
        let seed = self.new.sb.checksum_seed;
        self.change(place, |bytes| xattr::seal_block(bytes, place, seed))
    }

    /// Returns `false` if a block has no room.
    fn directory(&self, subject: &InodeDraft, map: &Map, seed: Option<u32>) -> Result<bool> {
        let blocks = subject.inode.size() >> self.checked.geometry().block_size_log;
        let has_index = subject.has(flags::INDEX);
        let nodes = if has_index { self.nodes(map)? } else { BTreeSet::new() };
        let is_keyed = subject.has(flags::ENCRYPT) && subject.has(flags::CASEFOLD);
        let hash_size = if is_keyed { KEYED_HASH_SIZE } else { 0 };
        let mut has_room = true;
        for (number, place) in (0_u64..).zip(places(map, blocks)) {
            let kind = match () {
                () if has_index && number == 0 => Some(IndexKind::Root),
                () if nodes.contains(&place) => Some(IndexKind::Node),
                () => None,
            };
            self.change(place, |bytes| {
                has_room &= match kind {
                    Some(kind) => fit_index(bytes, kind, seed),
                    None => seed.is_none_or(|seed| fit_leaf(bytes, hash_size, seed)),
                }
            })?;
        }
        Ok(has_room)
    }

    /// Returns the positions of the nodes of a valid index.
    fn nodes(&self, map: &Map) -> Result<BTreeSet<Block>> {
        let mut found = BTreeSet::new();
        let Some(root) = map.place(0) else { return Ok(found) };
        let bytes = self.read(root)?;
        let RootInfo { indirect_levels, .. } = htree::root_info(&bytes);
        let mut level = vec![(bytes, IndexKind::Root)];
        for _ in 0..indirect_levels.min(htree::LEVELS_MAX_LARGE) {
            let mut below = Vec::new();
            for (bytes, kind) in level {
                let index = Index::new(&bytes, kind);
                for at in 0..index.count() {
                    let place = map.place(index.block(at).0).filter(|place| found.insert(*place));
                    if let Some(place) = place {
                        below.push((self.read(place)?, IndexKind::Node));
                    }
                }
            }
            level = below;
        }
        Ok(found)
    }

    fn read(&self, place: Block) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.new.block_size()];
        disk::BlockDevice::read_at(self.staging, self.new.geometry.byte_of(place), &mut bytes)
            .map_err(Error::Device)?;
        Ok(bytes)
    }

    fn change(&self, place: Block, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let before = self.read(place)?;
        let mut bytes = before.clone();
        change(&mut bytes);
        if bytes != before {
            self.staging.write_at_place(self.new.geometry.byte_of(place), &bytes)?;
        }
        Ok(())
    }
}

/// Writes bytes and converts device failures to errors of the file system.
trait WriteAtPlace {
    fn write_at_place(&self, offset: u64, bytes: &[u8]) -> Result<()>;
}

impl WriteAtPlace for Staging {
    fn write_at_place(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        disk::BlockDevice::write_at(self, offset, bytes).map_err(Error::Device)
    }
}

/// Returns the positions of a file's blocks in order, up to `blocks` of them.
fn places(map: &Map, blocks: u64) -> impl Iterator<Item = Block> {
    let of_run =
        |run: &super::map::FileExtent| (0..run.len).map(|at| run.start.plus(at.into())).collect();
    let runs = map.runs.iter().filter(move |run| u64::from(run.first) < blocks);
    runs.flat_map(move |run| {
        let mut places: Vec<Block> = of_run(run);
        places.truncate(blocks.saturating_sub(run.first.into()).try_into().unwrap_or(usize::MAX));
        places
    })
}

/// Adds a checksum to a block of entries; `hash_size` bytes follow each name. Returns `false` if there is no room.
fn fit_leaf(block: &mut [u8], hash_size: usize, seed: u32) -> bool {
    let Some(last) = dirent::records(block).last() else { return false };
    let (offset, rec_len) = (last.offset, last.rec_len);
    if offset + rec_len != block.len() {
        return false;
    }
    let is_free = last.inode == 0;
    let is_tail = is_free && rec_len == TAIL_SIZE && last.name.is_empty() && offset > 0;
    let used = if is_free { 0 } else { last.name.len() + hash_size };
    if !is_tail && rec_len < dirent::record_size(used) + TAIL_SIZE {
        return false;
    }
    if is_free && !is_tail {
        dirent::write_record(&mut block[offset..], rec_len - TAIL_SIZE, 0, 0, &[]);
    } else if !is_tail {
        dirent::write_rec_len(&mut block[offset + 4..offset + 6], rec_len - TAIL_SIZE);
    }
    dirent::write_tail(block);
    dirent::seal(block, seed);
    true
}

/// Sets the capacity of an index block with or without a checksum. Returns `false` if it has more entries.
fn fit_index(block: &mut [u8], place: IndexKind, seed: Option<u32>) -> bool {
    let limit = place.limit(block.len(), seed.is_some());
    let index = Index::new(block, place);
    let (count, first) = (index.count(), index.block(0));
    if count > usize::from(limit) {
        return false;
    }
    htree::write_counts(&mut block[htree::count_range(place)], limit, count as u16, first);
    if let Some(seed) = seed {
        // The checksum replaces the last entry.
        let end = block.len() - (block.len() - htree::count_range(place).start) % 8;
        block[end - 8..end].fill(0);
        htree::seal(block, place, seed);
    }
    true
}
