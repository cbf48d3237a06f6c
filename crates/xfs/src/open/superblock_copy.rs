//! The copies of the superblock at the start of every other group, for images whose first one is
//! damaged.
//!
//! A copy is as old as the last mkfs or growth. What it says of sizes and features holds; its totals do
//! not, but those are summed up from the groups anyway. Nothing is written by what it says.

use std::sync::Arc;

use blockdev::{BlockDevice, OverlayDevice};
use vfs::{Corruption, Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::address::AgNumber;
use crate::format::checksum;
use crate::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE, Superblock};

/// Most copies that are looked at. Any will do but those that do not know the root directory.
const COPIES_MAX: usize = 64;
/// Largest block, as a power of two, and the largest sector in bytes.
const BLOCK_LOG_MAX: u8 = 16;
const SECTOR_SIZE_MAX: u16 = 32 << 10;
/// How many groups mkfs makes by default, fewer or more for the size and the disks: guesses for unusual blocks.
const GROUPS_GUESSED: [u32; 5] = [4, 2, 8, 16, 32];
/// Blocks that are not usual, as powers of two.
const BLOCK_LOGS_UNUSUAL: [u8; 6] = [10, 11, 13, 14, 15, 16];
const BLOCK_LOG_USUAL: u8 = 12;
/// Largest group in bytes, which mkfs makes on large devices.
const GROUP_BYTES_MAX: u64 = 1 << 40;
/// What mkfs leaves in copies it does not fill in (`NULLFSINO`).
const NO_INODE: u64 = u64::MAX;

/// A sound copy.
pub(crate) struct Copy {
    ag: AgNumber,
    sector: Vec<u8>,
}

/// How groups lie, as far as it takes to find a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    ag_count: u32,
    ag_blocks: u32,
    block_log: u8,
}

impl Shape {
    fn of(raw: &RawSuperblock) -> Self {
        let (ag_count, ag_blocks) = (raw.agcount.get(), raw.agblocks.get());
        Self { ag_count, ag_blocks, block_log: raw.blocklog }
    }

    /// How mkfs makes groups on a device of so many bytes. There are some hundred guesses at most.
    fn guesses(device_len: u64) -> impl Iterator<Item = Self> {
        let even = move |block_log: u8, ag_count: u32| {
            let ag_blocks = (device_len >> block_log).div_ceil(ag_count.into());
            Some(Self { ag_count, ag_blocks: ag_blocks.try_into().ok()?, block_log })
        };
        let largest = move |block_log: u8| {
            let ag_blocks = GROUP_BYTES_MAX >> block_log;
            let ag_count = (device_len >> block_log).div_ceil(ag_blocks).try_into().ok()?;
            Some(Self { ag_count, ag_blocks: ag_blocks.try_into().ok()?, block_log })
        };
        let usual = (2..=64).filter_map(move |ag_count| even(BLOCK_LOG_USUAL, ag_count));
        let unusual = BLOCK_LOGS_UNUSUAL.into_iter().flat_map(move |block_log| {
            let counts = GROUPS_GUESSED.into_iter();
            counts.filter_map(move |ag_count| even(block_log, ag_count)).chain(largest(block_log))
        });
        largest(BLOCK_LOG_USUAL).into_iter().chain(usual).chain(unusual)
    }

    /// The groups whose copies are looked at: the last one and that in the middle, which know the root directory, and
    /// up to so many of the first ones.
    fn groups(self, copies_max: usize) -> impl Iterator<Item = u32> {
        let count = self.ag_count;
        let nearer = (1..count).take(copies_max);
        [count.saturating_sub(1), count / 2].into_iter().chain(nearer)
    }
}

impl Copy {
    /// A sound copy that knows the root directory: mkfs sees to it that the last group's does. It is
    /// looked for where the damaged superblock would have it, and where it is with groups of the usual sizes.
    pub(crate) fn find(device: &dyn BlockDevice) -> Option<Self> {
        let damaged = read(device, 0)?;
        if Self::is_sealed(device, &damaged) {
            // It is as it was written: what it says, such as that mkfs never finished, is so.
            return None;
        }
        let look = |shape: Shape, copies_max| {
            shape.groups(copies_max).find_map(|ag| Self::at(device, shape, ag))
        };
        look(Shape::of(&damaged), COPIES_MAX)
            .or_else(|| Shape::guesses(device.len()).find_map(|shape| look(shape, 1)))
    }

    /// Whether the checksum of the first superblock is right.
    fn is_sealed(device: &dyn BlockDevice, first: &RawSuperblock) -> bool {
        let len = usize::from(first.sectsize.get().min(SECTOR_SIZE_MAX)).max(SUPERBLOCK_SIZE);
        let mut sector = vec![0; len];
        first.features().crc()
            && device.read_at(0, &mut sector).is_ok()
            && checksum::check("superblock", &sector, CRC_OFFSET).is_ok()
    }

    fn at(device: &dyn BlockDevice, shape: Shape, ag: u32) -> Option<Self> {
        Self::any_at(device, shape, ag).filter(Self::knows_root)
    }

    fn knows_root(&self) -> bool {
        self.raw().is_some_and(|raw| ![0, NO_INODE].contains(&raw.rootino.get()))
    }

    /// What it says.
    pub(crate) fn raw(&self) -> Option<RawSuperblock> {
        RawSuperblock::read_from_prefix(&self.sector).ok().map(|(raw, _)| raw)
    }

    /// All sound copies, of so many groups at most, whatever the first superblock is. Groups are looked for as by
    /// [`Self::find`].
    pub(crate) fn all(device: &dyn BlockDevice) -> Vec<Self> {
        let first = read(device, 0).map(|raw| Shape::of(&raw));
        let any = |shape: Shape, copies_max: usize| {
            shape.groups(copies_max).find_map(|ag| Self::any_at(device, shape, ag))
        };
        let found = first.and_then(|shape| any(shape, COPIES_MAX));
        let found = found.or_else(|| Shape::guesses(device.len()).find_map(|shape| any(shape, 1)));
        let Some(raw) = found.and_then(|copy| copy.raw()) else { return Vec::new() };
        let shape = Shape::of(&raw);
        let mut groups: Vec<u32> = shape.groups(COPIES_MAX).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().filter_map(|ag| Self::any_at(device, shape, ag)).collect()
    }

    /// A sound copy, which need not know the root directory.
    fn any_at(device: &dyn BlockDevice, shape: Shape, ag: u32) -> Option<Self> {
        if ag == 0 || shape.block_log > BLOCK_LOG_MAX {
            return None;
        }
        let blocks = u64::from(ag) * u64::from(shape.ag_blocks);
        let offset = blocks.checked_mul(1 << shape.block_log)?;
        let mut raw = read(device, offset)?;
        let (found, sector_size) = (Shape::of(&raw), raw.sectsize.get());
        let is_ours = raw.features().crc()
            && (found.ag_blocks, found.block_log) == (shape.ag_blocks, shape.block_log)
            && sector_size <= SECTOR_SIZE_MAX;
        if !is_ours {
            return None;
        }
        let mut sector = vec![0; usize::from(sector_size).max(SUPERBLOCK_SIZE)];
        if offset.checked_add(sector.len() as u64)? > device.len() {
            return None;
        }
        device.read_at(offset, &mut sector).ok()?;
        checksum::check("superblock", &sector, CRC_OFFSET).ok()?;
        // mkfs leaves the mark in copies.
        raw.inprogress = 0;
        sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
        checksum::seal(&mut sector, CRC_OFFSET);
        Superblock::parse(&sector, device.len()).ok()?;
        Some(Self { ag: AgNumber(ag), sector })
    }

    /// A view of the device with the copy in the place of the superblock.
    pub(crate) fn in_place(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
        let view = OverlayDevice::new(device);
        view.write_at(0, &self.sector).map_err(Error::Device)?;
        Ok(Arc::new(view))
    }

    /// What to say when the image is read by this copy.
    pub(crate) fn remark(&self, damage: &Corruption) -> String {
        format!("{damage}; the image is read by the copy in group {}", self.ag.0)
    }
}

/// Whether a device has a sound copy of a superblock that stands in for its first one, which may have lost everything
/// that tells that it is XFS. False if the first one is as it was written.
pub fn has_superblock_copy(device: &dyn BlockDevice) -> bool {
    Copy::find(device).is_some()
}

/// Bytes at which the second group may start, with groups of the usual sizes.
pub(crate) fn group_starts(device_len: u64) -> impl Iterator<Item = u64> {
    Shape::guesses(device_len).map(|shape| u64::from(shape.ag_blocks) << shape.block_log)
}

/// Adds to a damaged superblock's error where a sound copy is, and what can be done with that.
pub(crate) fn advise(device: &dyn BlockDevice, error: Error) -> Error {
    match (error, Copy::find(device)) {
        (Error::Corrupt(damage), Some(Copy { ag, .. })) => damage
            .advise(format!(
                "the copy in group {} is sound: diskwright repair mends the image by it, and it can be \
                 read as it is",
                ag.0
            ))
            .into(),
        (error, _) => error,
    }
}

fn read(device: &dyn BlockDevice, offset: u64) -> Option<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if offset.checked_add(SUPERBLOCK_SIZE as u64)? > device.len() {
        return None;
    }
    device.read_at(offset, &mut bytes).ok()?;
    RawSuperblock::read_from_bytes(&bytes).ok()
}
