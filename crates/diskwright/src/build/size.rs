//! How large an image has to be.

use source::{EntryKind, Source};

use super::BuildError;
use super::format::{Inodes, Plan};

/// Sizes of the image that a source is tried on, in bytes: sparse files, of which only metadata is
/// written.
pub(super) const TRIAL_BYTES: [u64; 3] = [64 << 30, 1 << 40, 15 << 40];

/// Bytes per inode in such an image.
pub(super) const TRIAL_INODE_RATIO: u64 = 16 << 10;

/// Images built before giving up, each a little larger than the one before.
pub(super) const ATTEMPTS: usize = 8;

/// Inodes that every file system uses itself, more than enough.
const INODES_RESERVED: u64 = 16;

/// Bytes of the smallest image tried.
const SMALLEST_BYTES: u64 = 256 << 10;

/// Inodes to ask for when `needed` will be used.
pub(super) fn inodes_for(needed: u64) -> Inodes {
    Inodes::Count(u32::try_from(needed + INODES_RESERVED).unwrap_or(u32::MAX))
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

/// Blocks to add when an image turned out too small.
pub(super) fn grow_by(blocks: u64) -> u64 {
    (blocks / 200).max(8)
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
