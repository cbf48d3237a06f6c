//! Computation of the image size.

use import::{EntryKind, Source};

use super::BuildError;
use super::format::{Inodes, Plan};

/// Sizes of trial images in bytes: sparse files with metadata only.
pub(super) const TRIAL_BYTES: [u64; 3] = [64 << 30, 1 << 40, 15 << 40];

/// Bytes per inode in a trial image.
pub(super) const TRIAL_INODE_RATIO: u64 = 16 << 10;

/// Maximum number of builds, each with a larger image.
pub(super) const ATTEMPTS: u32 = 24;

/// Number of attempts after which the increment doubles each time.
const CAREFUL_ATTEMPTS: u32 = 8;

/// Upper limit of the inodes that file systems use themselves.
const INODES_RESERVED: u64 = 16;

/// Smallest size tried, in bytes.
const SMALLEST_BYTES: u64 = 256 << 10;

/// Tolerated excess of an estimated image size: this fraction of it, plus some bytes.
const EXCESS_PART: u64 = 200;
const EXCESS_BYTES: u64 = 256 << 10;

/// Adds a reserve to an estimated number of blocks, because fragmentation slightly increases the use of a full image.
pub(super) fn with_spare(blocks: u64) -> u64 {
    blocks.saturating_add(grow_by(blocks, 0))
}

/// Returns whether the size is close to the minimum.
pub(super) fn is_close(size: u64, smallest: u64) -> bool {
    size.saturating_sub(smallest) <= smallest / EXCESS_PART + EXCESS_BYTES
}

/// Returns the inodes to request if `needed` will be used.
pub(super) fn inodes_for(needed: u64) -> Inodes {
    Inodes::Count(u32::try_from(needed + INODES_RESERVED).unwrap_or(u32::MAX))
}

/// Returns the default number of inodes for the free space.
pub(super) fn inodes_of_free(usual: Inodes, free: u64) -> u64 {
    match usual {
        Inodes::PerBytes(bytes) => free / bytes,
        Inodes::Count(_) => 0,
    }
}

/// Returns the default number of inodes for an image of `size` bytes, or more if `known` entries require it.
pub(super) fn usual_or_at_least(usual: Inodes, size: u64, known: u64) -> Inodes {
    match usual {
        Inodes::PerBytes(bytes) if size / bytes >= known + INODES_RESERVED => usual,
        // Reserve for subdirectories that are not counted yet.
        _ => inodes_for(known + known / 8),
    }
}

/// Counts entries that need an inode, with a reserve for parent directories that an archive does not list.
pub(super) fn count_entries(source: &mut dyn Source) -> Result<u64, BuildError> {
    let mut count = 0;
    while let Some(entry) = source.next_entry()? {
        count += u64::from(!matches!(entry.kind, EntryKind::Hardlink(_)));
    }
    Ok(count + count / 64)
}

/// Returns the blocks to add after the `attempt`th failure, from 0 on: 0.5 %, at least 8 blocks.
pub(super) fn grow_by(blocks: u64, attempt: u32) -> u64 {
    let doubled = (attempt + 1).saturating_sub(CAREFUL_ATTEMPTS);
    (blocks / 200).max(8) << doubled
}

/// Returns the smallest size in bytes whose file system has `blocks` free blocks plus `free` bytes for ordinary users.
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
            // Too small for any file system.
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
            // No size is large enough; the plan returns the reason.
            plan(high)?;
            return Err(vfs::Error::NoSpace.into());
        }
        high *= 2;
    }
    // Search in units of 1 KiB, which divides every block size.
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
    // Round down, because a partial block is unusable.
    let size = high << 10;
    let block_size = plan(size)?.block_size();
    Ok(size / block_size * block_size)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use disk::BlockDevice;

    use super::super::estimate::Estimate;
    use super::super::format::Fresh;
    use super::*;

    /// Mock file system: the first hundred blocks and every tenth one are metadata.
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
    fn the_added_space_grows_until_everything_fits() {
        assert_eq!([0, 7, 8, 9].map(|attempt| grow_by(100, attempt)), [8, 8, 16, 32]);
        assert_eq!(grow_by(100_000, 0), 500);
        let added = (0..ATTEMPTS).fold(1_000, |blocks, attempt| blocks + grow_by(blocks, attempt));
        assert!(added > 1_000_000);
    }
}
