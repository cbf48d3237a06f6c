//! How large an image has to be.

use source::{EntryKind, Source};

use super::BuildError;
use super::format::{Inodes, Plan};

/// Sizes of the image that a source is tried on, in bytes: sparse files, of which only metadata is
/// written.
pub(super) const TRIAL_BYTES: [u64; 3] = [64 << 30, 1 << 40, 15 << 40];

/// Bytes per inode in such an image.
pub(super) const TRIAL_INODE_RATIO: u64 = 16 << 10;

/// Images built before giving up, each larger than the one before.
pub(super) const ATTEMPTS: u32 = 24;

/// Attempts after which what is added doubles each time.
const CAREFUL_ATTEMPTS: u32 = 8;

/// Inodes that every file system uses itself, more than enough.
const INODES_RESERVED: u64 = 16;

/// Bytes of the smallest image tried.
const SMALLEST_BYTES: u64 = 256 << 10;

/// By how much an image whose size was reckoned may be larger than it has to be: this part of it, and some bytes.
const EXCESS_PART: u64 = 200;
const EXCESS_BYTES: u64 = 256 << 10;

/// Blocks for an image whose size was reckoned: what fills an image to its last block nearly always takes a
/// little more space than that, as it does not come in one piece.
pub(super) fn with_spare(blocks: u64) -> u64 {
    blocks.saturating_add(grow_by(blocks, 0))
}

/// Whether an image is about as small as it has to be.
pub(super) fn is_close(size: u64, smallest: u64) -> bool {
    size.saturating_sub(smallest) <= smallest / EXCESS_PART + EXCESS_BYTES
}

/// Inodes to ask for when `needed` will be used.
pub(super) fn inodes_for(needed: u64) -> Inodes {
    Inodes::Count(u32::try_from(needed + INODES_RESERVED).unwrap_or(u32::MAX))
}

/// Inodes that usually come with so many bytes, for what is to be put into them.
pub(super) fn inodes_of_free(usual: Inodes, free: u64) -> u64 {
    match usual {
        Inodes::PerBytes(bytes) => free / bytes,
        Inodes::Count(_) => 0,
    }
}

/// The usual number of inodes for an image of `size` bytes, or as many as `known` entries call for.
pub(super) fn usual_or_at_least(usual: Inodes, size: u64, known: u64) -> Inodes {
    match usual {
        Inodes::PerBytes(bytes) if size / bytes >= known + INODES_RESERVED => usual,
        // What is in subdirectories is not known yet.
        _ => inodes_for(known + known / 8),
    }
}

/// Counts what will need an inode, with something to spare for directories that an archive implies
/// without listing them.
pub(super) fn count_entries(source: &mut dyn Source) -> Result<u64, BuildError> {
    let mut count = 0;
    while let Some(entry) = source.next_entry()? {
        count += u64::from(!matches!(entry.kind, EntryKind::Hardlink(_)));
    }
    Ok(count + count / 64)
}

/// Blocks to add when an image turned out too small for the `attempt`th time, from 0 on: 0.5 %, and at least
/// 8 blocks.
pub(super) fn grow_by(blocks: u64, attempt: u32) -> u64 {
    let doubled = (attempt + 1).saturating_sub(CAREFUL_ATTEMPTS);
    (blocks / 200).max(8) << doubled
}

/// The smallest size, in bytes, whose file system has `blocks` free blocks and `free` bytes more
/// that ordinary users may take.
///
/// It is at least `size_min` bytes.
pub(super) fn smallest(
    plan: impl Fn(u64) -> Result<Box<dyn Plan>, BuildError>,
    size_min: u64,
    blocks: u64,
    free: u64,
) -> Result<u64, BuildError> {
    let holds = |size: u64| -> Result<bool, BuildError> {
        if size < size_min {
            return Ok(false);
        }
        let plan = match plan(size) {
            Ok(plan) => plan,
            // Too small for a file system at all.
            Err(BuildError::FileSystem(vfs::Error::NoSpace | vfs::Error::Invalid(_))) => {
                return Ok(false);
            }
            Err(e) => return Err(e),
        };
        let reserved = if free > 0 { plan.unavailable() } else { 0 };
        Ok(plan.free_blocks() >= blocks + reserved + free.div_ceil(plan.block_size()))
    };
    let mut high = SMALLEST_BYTES;
    while !holds(high)? {
        if high >= 1 << 60 {
            // Nothing is large enough: let the plan say why.
            plan(high)?;
            return Err(vfs::Error::NoSpace.into());
        }
        high *= 2;
    }
    // Sizes are tried in whole KiB, of which every block size is a multiple.
    let is_first = high == SMALLEST_BYTES;
    let (mut low, mut high) = (if is_first { 0 } else { high >> 11 }, high >> 10);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if holds(middle << 10)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    // What does not fill a block is of no use.
    let size = high << 10;
    let block_size = plan(size)?.block_size();
    Ok(size / block_size * block_size)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use blockdev::BlockDevice;

    use super::super::estimate::Estimate;
    use super::super::format::Fresh;
    use super::*;

    /// A file system in which every tenth block, and the first hundred, are metadata.
    struct Tenth(u64);

    impl Plan for Tenth {
        fn block_size(&self) -> u64 {
            4096
        }

        fn free_blocks(&self) -> u64 {
            (self.0 / 4096).saturating_sub(100) / 10 * 9
        }

        fn inodes_max(&self) -> u64 {
            0
        }

        fn unavailable(&self) -> u64 {
            self.0 / 4096 / 20
        }

        fn estimate(&self) -> Option<Box<dyn Estimate>> {
            None
        }

        fn make(&self, _: &Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Fresh>> {
            Err(vfs::Error::NoSpace)
        }
    }

    #[test]
    fn a_computed_size_is_the_smallest_that_holds_what_is_needed() {
        for (blocks, free) in
            [(0, 0), (1, 0), (77, 0), (5_000, 0), (5_000, 10_000_000), (1 << 20, 1)]
        {
            let plan = |size| Ok(Box::new(Tenth(size)) as Box<dyn Plan>);
            let size = smallest(plan, 0, blocks, free).unwrap();
            let holds = |size| {
                let reserved = if free > 0 { Tenth(size).unavailable() } else { 0 };
                Tenth(size).free_blocks() >= blocks + reserved + free.div_ceil(4096)
            };
            let is_smallest = size == 0 || !holds(size - 4096);
            assert!(holds(size) && is_smallest, "{blocks} blocks, {free} free: {size}");
        }
    }

    #[test]
    fn what_is_added_grows_until_anything_fits() {
        assert_eq!([0, 7, 8, 9].map(|attempt| grow_by(100, attempt)), [8, 8, 16, 32]);
        assert_eq!(grow_by(100_000, 0), 500);
        let added = (0..ATTEMPTS).fold(1_000, |blocks, attempt| blocks + grow_by(blocks, attempt));
        assert!(added > 1_000_000);
    }
}
