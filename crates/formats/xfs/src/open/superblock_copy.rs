//! The copies of the superblock at the start of every other group, for images with a damaged first superblock.
//!
//! A copy was written by the last mkfs or growth. Its sizes and features are valid; its totals are not, but those are
//! computed from the groups anyway. An image opened by a copy is read-only.

use std::sync::Arc;

use disk::{BlockDevice, OverlayDevice};
use vfs::{Corruption, Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use super::{cut, root};
use crate::format::address::AgNumber;
use crate::format::checksum;
use crate::format::superblock::{CRC_OFFSET, RawSuperblock, SUPERBLOCK_SIZE, Superblock};

/// Maximum number of copies that are read. Any copy is sufficient, except that some lack the root directory.
const COPIES_MAX: usize = 64;
/// Maximum block size, as a power of two.
const BLOCK_LOG_MAX: u8 = 16;
const SECTOR_SIZE_MAX: u16 = 32 << 10;
/// Numbers of groups to try for unusual block sizes. The default of mkfs depends on the size and the disks.
const GROUPS_GUESSED: [u32; 5] = [4, 2, 8, 16, 32];
/// Unusual block sizes, as powers of two.
const BLOCK_LOGS_UNUSUAL: [u8; 6] = [10, 11, 13, 14, 15, 16];
const BLOCK_LOG_USUAL: u8 = 12;
/// Maximum size of a group in bytes, as mkfs makes on large devices.
const GROUP_BYTES_MAX: u64 = 1 << 40;
/// Value of inode numbers that mkfs does not set in some copies (`NULLFSINO`).
const NO_INODE: u64 = u64::MAX;

/// Number of bytes that a search reads at once.
const PIECE_BYTES: usize = 1 << 20;
const SECTOR_SIZE_MIN: usize = 512;
/// Maximum number of group shapes that a search tries: an image may contain other images.
const SHAPES_MAX: usize = 64;

/// Callback of a search: number of bytes searched, and total. Returns whether to continue.
pub(crate) type Progress<'p> = &'p (dyn Fn(u64, u64) -> bool + Sync);

/// A valid copy.
#[derive(Clone)]
pub(crate) struct Copy {
    ag: AgNumber,
    sector: Vec<u8>,
}

/// Size and number of groups: the information needed to locate copies.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GroupGeometry {
    ag_count: u32,
    ag_blocks: u32,
    block_log: u8,
}

impl GroupGeometry {
    fn of(raw: &RawSuperblock) -> Self {
        let (ag_count, ag_blocks) = (raw.agcount.get(), raw.agblocks.get());
        Self { ag_count, ag_blocks, block_log: raw.blocklog }
    }

    /// Returns the group, other than the first, that starts at a byte of the device.
    fn group_at(self, offset: u64) -> Option<u32> {
        let bytes = u64::from(self.ag_blocks).checked_shl(self.block_log.into()).unwrap_or(0);
        let ag = offset.checked_div(bytes).filter(|ag| *ag > 0 && ag * bytes == offset)?;
        u32::try_from(ag).ok().filter(|ag| *ag < self.ag_count)
    }

    /// Returns the likely shapes of groups made by mkfs on a device of `device_len` bytes: about a hundred at most.
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

    /// Returns the groups whose copies are read: the last one and the middle one, which contain the root directory, and
    /// up to `copies_max` of the first ones.
    fn groups(self, copies_max: usize) -> impl Iterator<Item = u32> {
        let count = self.ag_count;
        let nearer = (1..count).take(copies_max);
        [count.saturating_sub(1), count / 2].into_iter().chain(nearer)
    }
}

impl Copy {
    /// Returns a valid copy if the first superblock is unusable. Looks where the damaged superblock locates copies, and
    /// at the locations of groups of the usual sizes.
    pub(crate) fn find(device: &dyn BlockDevice) -> Option<Self> {
        if is_first_written(device) {
            return None;
        }
        Self::best(device, Self::usual(device)?)
    }

    /// Calls [`Self::find`], and then searches the whole device.
    pub(crate) fn find_anywhere(device: &dyn BlockDevice, progress: Progress<'_>) -> Option<Self> {
        if is_first_written(device) {
            return None;
        }
        Self::find(device).or_else(|| Self::best(device, search(device, progress)))
    }

    /// Returns the copy to use for reading: one that contains the root directory, if there is one.
    fn best(device: &dyn BlockDevice, copies: Vec<Self>) -> Option<Self> {
        let at = copies.iter().rposition(Self::has_root).unwrap_or(0);
        let mut copy = copies.into_iter().nth(at)?;
        copy.complete_root(device);
        Some(copy)
    }

    /// Returns copies that are found without a search.
    fn usual(device: &dyn BlockDevice) -> Option<Vec<Self>> {
        let first = read(device, 0).map(|raw| GroupGeometry::of(&raw));
        let any = |shape: GroupGeometry, copies_max: usize| {
            let copy = shape.groups(copies_max).find_map(|ag| Self::at(device, shape, ag))?;
            Some(Self::of_shape(device, GroupGeometry::of(&copy.raw()?)))
        };
        let found = first.and_then(|shape| any(shape, COPIES_MAX));
        found.or_else(|| GroupGeometry::guesses(device.len()).find_map(|shape| any(shape, 1)))
    }

    /// Returns all valid copies, of at most [`COPIES_MAX`] groups and the last ones, regardless of the first
    /// superblock. The whole device is searched only if the first superblock is unusable.
    pub(crate) fn all(device: &dyn BlockDevice) -> Vec<Self> {
        match Self::usual(device) {
            Some(copies) => copies,
            None if first_sector(device).is_some_and(|sector| can_be(&sector)) => Vec::new(),
            None => search(device, &|_, _| true),
        }
    }

    /// Returns the valid copies of groups of one shape.
    fn of_shape(device: &dyn BlockDevice, shape: GroupGeometry) -> Vec<Self> {
        let mut groups: Vec<u32> = shape.groups(COPIES_MAX).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().filter_map(|ag| Self::at(device, shape, ag)).collect()
    }

    fn has_root(&self) -> bool {
        self.raw().is_some_and(|raw| ![0, NO_INODE].contains(&raw.rootino.get()))
    }

    /// Returns the superblock in the copy.
    pub(crate) fn raw(&self) -> Option<RawSuperblock> {
        RawSuperblock::read_from_prefix(&self.sector).ok().map(|(raw, _)| raw)
    }

    /// Returns a valid copy. The image may be shorter than the file system.
    fn at(device: &dyn BlockDevice, shape: GroupGeometry, ag: u32) -> Option<Self> {
        if ag == 0 || shape.block_log > BLOCK_LOG_MAX {
            return None;
        }
        let blocks = u64::from(ag) * u64::from(shape.ag_blocks);
        let offset = blocks.checked_mul(1 << shape.block_log)?;
        let mut raw = read(device, offset)?;
        let (found, sector_size) = (GroupGeometry::of(&raw), raw.sectsize.get());
        let is_ours = (found.ag_blocks, found.block_log) == (shape.ag_blocks, shape.block_log)
            && ag < found.ag_count
            && sector_size <= SECTOR_SIZE_MAX;
        if !is_ours {
            return None;
        }
        let mut sector = vec![0; usize::from(sector_size).max(SUPERBLOCK_SIZE)];
        if offset.checked_add(sector.len() as u64)? > device.len() {
            return None;
        }
        device.read_at(offset, &mut sector).ok()?;
        let is_sealed = raw.features().crc();
        if is_sealed {
            checksum::check("superblock", &sector, CRC_OFFSET).ok()?;
        }
        // mkfs leaves this flag set in copies.
        raw.inprogress = 0;
        let sector = with_raw(sector, &raw);
        Superblock::parse(&sector, u64::MAX).ok()?;
        Some(Self { ag: AgNumber(ag), sector })
    }

    /// Sets the root directory if the copy has none: kernels write it only to the first superblock, and mkfs to some
    /// copies.
    fn complete_root(&mut self, device: &dyn BlockDevice) {
        if self.has_root() {
            return;
        }
        let root =
            Superblock::parse(&self.sector, u64::MAX).ok().and_then(|sb| root::find(device, &sb));
        if let (Some(root), Some(mut raw)) = (root, self.raw()) {
            root::set(&mut raw, root);
            self.sector = with_raw(std::mem::take(&mut self.sector), &raw);
        }
    }

    /// Returns a view of the device with the copy in place of the superblock.
    pub(crate) fn in_place(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
        let view = OverlayDevice::new(device);
        view.write_at(0, &self.sector).map_err(Error::Device)?;
        Ok(Arc::new(view))
    }

    /// Like [`Self::in_place`], with a file system that is cut to the size of the image.
    pub(crate) fn fitted_in_place(
        &self,
        device: Arc<dyn BlockDevice>,
    ) -> Result<Option<Arc<dyn BlockDevice>>> {
        let fitted = self.raw().and_then(|raw| cut::fitted(&raw, device.len()));
        let Some(raw) = fitted else { return Ok(None) };
        let sector = with_raw(self.sector.clone(), &raw);
        Self { ag: self.ag, sector }.in_place(device).map(Some)
    }

    /// Returns the remark for an image that is read by this copy.
    pub(crate) fn remark(&self, damage: &Corruption) -> String {
        format!("{damage}; using the superblock copy in group {}", self.ag.0)
    }
}

/// Returns the sector with another superblock in it, sealed if it has a checksum.
fn with_raw(mut sector: Vec<u8>, raw: &RawSuperblock) -> Vec<u8> {
    sector[..SUPERBLOCK_SIZE].copy_from_slice(raw.as_bytes());
    if raw.features().crc() {
        checksum::seal(&mut sector, CRC_OFFSET);
    }
    sector
}

/// Returns the bytes that may contain the first superblock.
fn first_sector(device: &dyn BlockDevice) -> Option<Vec<u8>> {
    let mut sector = vec![0; device.len().min(SECTOR_SIZE_MAX.into()) as usize];
    device.read_at(0, &mut sector).ok().map(|()| sector)
}

/// Returns whether a superblock is usable. The length of the image does not matter.
fn can_be(sector: &[u8]) -> bool {
    Superblock::parse(sector, u64::MAX).is_ok()
}

/// Returns whether the first superblock is intact: its checksum is valid, or in version 4 it is usable. No copy
/// replaces an intact superblock, even if it says that mkfs never finished.
fn is_first_written(device: &dyn BlockDevice) -> bool {
    let Some(sector) = first_sector(device) else { return false };
    let Ok((first, _)) = RawSuperblock::read_from_prefix(&sector) else { return false };
    if !first.features().crc() {
        return can_be(&sector);
    }
    let len = usize::from(first.sectsize.get().min(SECTOR_SIZE_MAX)).max(SUPERBLOCK_SIZE);
    let sector = sector.get(..len);
    sector.is_some_and(|sector| checksum::check("superblock", sector, CRC_OFFSET).is_ok())
}

/// Searches the device for copies, from its start. Prefers the first group size with several valid copies, otherwise
/// the first valid copy.
fn search(device: &dyn BlockDevice, progress: Progress<'_>) -> Vec<Copy> {
    let len = device.len();
    let mut best = Vec::new();
    let mut tried: Vec<GroupGeometry> = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut start = 0;
    while start < len && progress(start, len) {
        let count = (len - start).min(PIECE_BYTES as u64) as usize;
        // Unreadable bytes are treated as containing no copy.
        let is_read = device.read_at(start, &mut piece[..count]).is_ok();
        let sectors = piece[..count].chunks(SECTOR_SIZE_MIN).zip(0_u64..);
        let found = sectors.filter(|(sector, _)| is_read && sector.starts_with(b"XFSB"));
        for (_, nth) in found {
            let offset = start + nth * SECTOR_SIZE_MIN as u64;
            let Some(shape) = read(device, offset).map(|raw| GroupGeometry::of(&raw)) else {
                continue;
            };
            let Some(ag) = shape.group_at(offset).filter(|_| !tried.contains(&shape)) else {
                continue;
            };
            if Copy::at(device, shape, ag).is_none() || tried.len() == SHAPES_MAX {
                continue;
            }
            tried.push(shape);
            let copies = Copy::of_shape(device, shape);
            if copies.len() > best.len() {
                best = copies;
            }
            if best.len() > 1 || shape.ag_count == 2 {
                return best;
            }
        }
        start += count as u64;
    }
    best
}

/// Returns whether a device has a valid copy that can replace its first superblock, which may have lost everything that
/// identifies XFS. False if the first superblock is intact.
pub fn has_superblock_copy(device: &dyn BlockDevice) -> bool {
    Copy::find(device).is_some()
}

/// Like [`has_superblock_copy`], but searches the whole device if no copy is at the usual locations.
pub fn has_superblock_copy_anywhere(device: &dyn BlockDevice) -> bool {
    Copy::find_anywhere(device, &|_, _| true).is_some()
}

/// Returns the byte offsets at which the second group may start, with groups of the usual sizes.
pub(crate) fn group_starts(device_len: u64) -> impl Iterator<Item = u64> {
    GroupGeometry::guesses(device_len).map(|shape| u64::from(shape.ag_blocks) << shape.block_log)
}

/// Adds to the error of a damaged superblock the group of a valid copy, and advice.
pub(crate) fn advise(device: &dyn BlockDevice, error: Error) -> Error {
    match (error, Copy::find(device)) {
        (Error::Corrupt(damage), Some(Copy { ag, .. })) => damage
            .advise(format!(
                "the copy in group {} is valid; restore it with diskwright repair, or read the \
                 image with it",
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
