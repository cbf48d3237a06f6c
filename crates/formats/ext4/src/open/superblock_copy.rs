//! Backup copies of the superblock, for images whose primary one is damaged.
//!
//! A copy has the state of the last mkfs or e2fsck. Its sizes and features are valid, but it does not show whether the
//! journal needs replay. Nothing is ever written based on a copy.

use std::sync::Arc;

use disk::{BlockDevice, OverlayDevice};
use vfs::{Corruption, Error, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::address::Group;
use crate::format::features::{Compat, Incompat};
use crate::format::superblock::{
    MAGIC, RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock, is_backup_number,
};

/// Maximum `s_log_block_size`: 64 KiB blocks.
const LOG_BLOCK_SIZE_MAX: u32 = 6;

/// The first groups that have a copy with `sparse_super` (and without it too): 1 and the powers of 3, 5 and 7.
const GROUPS: [u32; 9] = [1, 3, 5, 7, 9, 25, 27, 49, 81];

/// Number of bytes from the start of a device that are searched for a copy. With blocks of at most 4 KiB, the second
/// group starts in this range.
const SEARCH_BYTES: u64 = 129 << 20;
/// Size of one read of the search, in bytes.
const SEARCH_PIECE_BYTES: usize = 1 << 20;
/// Byte range of `s_magic`.
const MAGIC_RANGE: std::ops::Range<usize> = 0x38..0x3a;

/// Position of a superblock copy that the caller specifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperblockPlace {
    /// Block at which the copy starts.
    pub block: u64,
    /// Block size in bytes; `None` tries all sizes.
    pub block_bytes: Option<u32>,
}

/// A valid copy.
pub(crate) struct Copy {
    group: u32,
    /// Block at which it starts.
    block: u64,
    raw: RawSuperblock,
    /// True if the damaged superblock says that the journal contains changes.
    is_marked: bool,
}

/// Layout of groups, as far as needed to find a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GroupLayout {
    log_block_size: u32,
    blocks_per_group: u32,
}

impl Copy {
    /// Finds the first valid copy. Tries the layout in the damaged superblock and the usual group sizes.
    pub(crate) fn find(device: &dyn BlockDevice) -> Option<Self> {
        let damaged = read(device, SUPERBLOCK_OFFSET)?;
        let told = GroupLayout {
            log_block_size: damaged.log_block_size.get(),
            blocks_per_group: damaged.blocks_per_group.get(),
        };
        let usual = (0..=LOG_BLOCK_SIZE_MAX).map(|log_block_size| GroupLayout {
            log_block_size,
            blocks_per_group: 8 << (10 + log_block_size),
        });
        let two = damaged.backup_bgs.map(|group| group.get());
        let groups = || GROUPS.into_iter().chain(two);
        let shapes = std::iter::once(told).chain(usual.filter(|shape| *shape != told));
        let mut places = shapes.flat_map(|shape| groups().map(move |group| (shape, group)));
        let copy = places
            .find_map(|(shape, group)| Self::at(device, shape, group))
            .or_else(|| Self::search(device, &damaged))?;
        let is_marked = damaged.features().incompat(Incompat::RECOVER);
        Some(Self { is_marked, ..copy })
    }

    /// Searches the start of a device with a damaged superblock for a copy, for unusual group sizes.
    fn search(device: &dyn BlockDevice, damaged: &RawSuperblock) -> Option<Self> {
        let bytes = damaged.as_bytes().try_into().ok()?;
        if Superblock::parse(bytes, device.len()).is_ok() {
            return None;
        }
        let end = device.len().min(SEARCH_BYTES);
        let mut piece = vec![0; SEARCH_PIECE_BYTES];
        for start in (0..end).step_by(SEARCH_PIECE_BYTES) {
            let len = (end - start).min(SEARCH_PIECE_BYTES as u64) as usize;
            if device.read_at(start, &mut piece[..len]).is_err() {
                continue;
            }
            let candidates = piece[..len].chunks_exact(SUPERBLOCK_SIZE).zip(0_u64..);
            let has_magic = |bytes: &[u8]| bytes[MAGIC_RANGE] == MAGIC.to_le_bytes();
            let found = candidates
                .filter(|(bytes, _)| has_magic(bytes))
                .find_map(|(_, at)| Self::at_byte(device, start + at * SUPERBLOCK_SIZE as u64));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Returns the copy at a byte offset, if the offset matches its layout.
    fn at_byte(device: &dyn BlockDevice, offset: u64) -> Option<Self> {
        let raw = read(device, offset)?;
        let (log_block_size, blocks_per_group) =
            (raw.log_block_size.get(), raw.blocks_per_group.get());
        if log_block_size > LOG_BLOCK_SIZE_MAX || blocks_per_group == 0 {
            return None;
        }
        let first = u64::from(log_block_size == 0);
        let in_blocks = (offset >> (10 + log_block_size)).checked_sub(first)?;
        let group = u32::try_from(in_blocks / u64::from(blocks_per_group)).ok()?;
        let copy = Self::at(device, GroupLayout { log_block_size, blocks_per_group }, group)?;
        (copy.block << (10 + log_block_size) == offset).then_some(copy)
    }

    /// Returns the copy that the caller specifies.
    ///
    /// # Errors
    /// `Corrupt` if there is no valid superblock of that block size.
    pub(crate) fn named(device: &dyn BlockDevice, place: SuperblockPlace) -> Result<Self> {
        let sizes = 10..=10 + LOG_BLOCK_SIZE_MAX;
        let wanted = |size: &u32| place.block_bytes.is_none_or(|bytes| bytes == 1 << size);
        let found = sizes.filter(wanted).find_map(|size| {
            let raw = read(device, place.block.checked_mul(1 << size)?)?;
            let sb = Superblock::parse(raw.as_bytes().try_into().ok()?, device.len()).ok()?;
            (sb.block_size_log == size).then_some(raw)
        });
        let Some(raw) = found else {
            let damage = Corruption::new("superblock copy", "no valid superblock found there");
            return Err(damage.at_block(place.block).into());
        };
        let group = u32::from(raw.block_group_nr.get());
        Ok(Self { group, block: place.block, raw, is_marked: false })
    }

    fn at(device: &dyn BlockDevice, shape: GroupLayout, group: u32) -> Option<Self> {
        let GroupLayout { log_block_size, blocks_per_group } = shape;
        if group == 0 || log_block_size > LOG_BLOCK_SIZE_MAX {
            return None;
        }
        let first = u64::from(log_block_size == 0);
        let block = first + u64::from(group) * u64::from(blocks_per_group);
        let block_size = 1024 << log_block_size;
        let raw = read(device, block.checked_mul(block_size)?)?;
        let bytes = raw.as_bytes().try_into().ok()?;
        let sb = Superblock::parse(bytes, device.len()).ok()?;
        // Revision 0 does not have the field, and not every mke2fs writes it.
        let is_unnumbered = raw.rev_level == 0 && raw.block_group_nr == 0;
        // The block may contain the superblock of another file system, for example in an image file.
        let is_ours = u64::from(sb.block_size()) == block_size
            && sb.blocks_per_group == blocks_per_group
            && (is_unnumbered || is_backup_number(raw.block_group_nr.get(), Group(group)));
        is_ours.then_some(Self { group, block, raw, is_marked: false })
    }

    /// Returns a view of the device with the copy as its superblock, and that superblock.
    pub(crate) fn in_place(
        &self,
        device: Arc<dyn BlockDevice>,
    ) -> Result<(Arc<dyn BlockDevice>, Superblock)> {
        let mut raw = self.raw.clone();
        raw.block_group_nr = 0.into();
        let mut features = raw.features();
        // An empty journal replays nothing, so the flag is harmless.
        features.incompat.set(Incompat::RECOVER, features.compat(Compat::HAS_JOURNAL));
        raw.set_features(&features);
        raw.seal();
        let view = OverlayDevice::new(device);
        view.write_at(SUPERBLOCK_OFFSET, raw.as_bytes()).map_err(Error::Device)?;
        let sb = crate::params::read_superblock(&view)?;
        Ok((Arc::new(view), sb))
    }

    /// Returns its raw superblock.
    pub(crate) const fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Returns its group.
    pub(crate) const fn group(&self) -> u32 {
        self.group
    }

    /// Returns whether the damaged superblock says that the journal contains changes.
    pub(crate) fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Returns a remark for an image that is read with this copy.
    pub(crate) fn remark(&self, damage: &Corruption) -> String {
        let Self { group, block, .. } = self;
        format!("{damage}; using the backup superblock in block {block} (group {group})")
    }
}

/// Returns whether a device has a valid superblock copy. The primary superblock may be damaged beyond recognition.
pub fn has_superblock_copy(device: &dyn BlockDevice) -> bool {
    Copy::find(device).is_some()
}

/// Adds advice to the error about a damaged superblock, if there is a valid copy.
pub(crate) fn advise(device: &dyn BlockDevice, error: Error) -> Error {
    match (error, Copy::find(device)) {
        (Error::Corrupt(damage), Some(Copy { block, .. })) => damage
            .advise(format!(
                "the backup in block {block} is valid; restore it with diskwright repair, or read \
                 the image with it"
            ))
            .into(),
        (error, _) => error,
    }
}

fn read(device: &dyn BlockDevice, offset: u64) -> Option<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let end = offset.checked_add(SUPERBLOCK_SIZE as u64)?;
    if end > device.len() {
        return None;
    }
    device.read_at(offset, &mut bytes).ok()?;
    RawSuperblock::read_from_bytes(&bytes).ok()
}
