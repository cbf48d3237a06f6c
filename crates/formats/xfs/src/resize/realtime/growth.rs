//! Computes the size of the realtime section after growing, without I/O.

use vfs::{Corruption, Error, Result};

use crate::format::features::{Incompat, RoCompat};
use crate::format::geometry::Geometry;
use crate::format::realtime::Realtime;
use crate::format::superblock::Superblock;
use crate::mkfs::blocks_min_with_realtime;

/// Minimum number of realtime extents of a group, as in mkfs.xfs.
const GROUP_EXTENTS_MIN: u64 = 2;

/// Size of a realtime section before and after growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RealtimeGrowth {
    /// Block size in bytes.
    pub block_size: u32,
    /// Number of blocks of a realtime extent.
    pub extent_blocks: u32,
    /// Blocks before; 0 if there was no section.
    pub blocks_before: u64,
    /// Blocks after.
    pub blocks_after: u64,
    /// Realtime groups before; 0 without groups.
    pub groups_before: u32,
    /// Realtime groups after; 0 without groups.
    pub groups_after: u32,
}

impl RealtimeGrowth {
    /// Computes the growth to a size in bytes.
    pub(super) fn of(sb: &Superblock, size_bytes: u64) -> Result<Self> {
        let raw = &sb.raw;
        if !sb.features.crc() {
            let advice = "mount it and run xfs_growfs -r";
            let what = "growing the realtime section of an image of version 4";
            return Err(Error::unsupported(what, advice));
        }
        let before = raw.rblocks.get();
        let of_extent = u64::from(raw.rextsize.get()).max(1);
        let wanted = size_bytes >> raw.blocklog;
        if wanted < before {
            let what = format!(
                "shrinking the realtime section (from {} to {size_bytes} bytes)",
                before << raw.blocklog
            );
            return Err(Error::unsupported(what, "create a new image with a smaller section"));
        }
        let wanted = without_small_group(sb, wanted - wanted % of_extent);
        let after = wanted.max(before);
        if before == 0 && after != 0 {
            check_features(sb)?;
        }
        let with = with_blocks(sb, after)?;
        Ok(Self {
            block_size: raw.blocksize.get(),
            extent_blocks: raw.rextsize.get(),
            blocks_before: before,
            blocks_after: after,
            groups_before: raw.rgcount.get(),
            groups_after: with.raw.rgcount.get(),
        })
    }

    /// Returns whether the size changes.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        self.blocks_after != self.blocks_before
    }

    /// Returns the size after, in bytes: the requested size without a partial realtime extent, or less if the rest is
    /// too small for a group.
    #[must_use]
    pub const fn bytes_after(&self) -> u64 {
        self.blocks_after * self.block_size as u64
    }
}

/// Refuses a first section that kernels do not mount.
fn check_features(sb: &Superblock) -> Result<()> {
    let has = |feature| sb.features.ro_compat(feature);
    if sb.features.incompat(Incompat::METADIR) {
        if has(RoCompat::REFLINK) && sb.raw.rextsize.get() != 1 {
            let what = "a realtime section with larger realtime extents in an image with reflink";
            return Err(Error::unsupported(what, "create a new image without reflink"));
        }
        return check_log(sb);
    }
    if has(RoCompat::REFLINK) || has(RoCompat::RMAPBT) {
        let what = "a realtime section in an image with rmapbt or reflink, but without metadir";
        return Err(Error::unsupported(what, "create a new image with metadir"));
    }
    check_log(sb)
}

/// Refuses a log that is too small for the transactions of kernels.
fn check_log(sb: &Superblock) -> Result<()> {
    let (log, min) = (sb.raw.logblocks.get(), blocks_min_with_realtime(&Geometry::new(sb)));
    if u64::from(log) < min {
        let what = format!(
            "a realtime section in an image with a log of {log} blocks, which needs {min} blocks"
        );
        return Err(Error::unsupported(what, "create a new image with a larger log"));
    }
    Ok(())
}

/// Returns `blocks` without a new last group that is too small.
pub(crate) fn without_small_group(sb: &Superblock, blocks: u64) -> u64 {
    let of_extent = u64::from(sb.raw.rextsize.get());
    let of_group = group_blocks(sb);
    if of_group == 0 || sb.raw.rblocks.get() > blocks - blocks % of_group {
        return blocks;
    }
    let rest = blocks % of_group;
    if rest < GROUP_EXTENTS_MIN * of_extent { blocks - rest } else { blocks }
}

/// Returns the number of blocks of a realtime group; 0 without groups.
pub(super) fn group_blocks(sb: &Superblock) -> u64 {
    match sb.features.incompat(Incompat::METADIR) {
        true => u64::from(sb.raw.rgextents.get()) * u64::from(sb.raw.rextsize.get()),
        false => 0,
    }
}

/// Returns the superblock of a file system whose realtime section has `blocks` blocks, and whose new extents are free.
pub(crate) fn with_blocks(before: &Superblock, blocks: u64) -> Result<Superblock> {
    let mut after = before.clone();
    let old = before.raw.rextents.get();
    let raw = &mut after.raw;
    let extents = blocks / u64::from(raw.rextsize.get()).max(1);
    let Some(log) = extents.checked_ilog2() else { return Ok(after) };
    let has_groups = before.features.incompat(Incompat::METADIR);
    if !has_groups && u32::try_from(extents).is_err() {
        let what = format!("a realtime section of {extents} extents");
        return Err(Error::unsupported(what, "the maximum of this program is 2^32 - 1"));
    }
    raw.rblocks = blocks.into();
    raw.rextents = extents.into();
    raw.rextslog = log as u8;
    if has_groups {
        let of_group = group_blocks(before);
        if of_group == 0 {
            let damage = Corruption::new("superblock", "rgextents");
            return Err(damage.mismatch("at least 1", 0).into());
        }
        let count = u32::try_from(blocks.div_ceil(of_group)).map_err(|_| too_many(blocks))?;
        after.raw.rgcount = count.into();
    }
    let Some(realtime) = Realtime::of(&after)? else { return Ok(after) };
    after.raw.rbmblocks = (realtime.space(0).bitmap_blocks() as u32).into();
    // The superblock of the realtime device takes the first extent.
    let taken = u64::from(has_groups && old == 0);
    let free = before.raw.frextents.get().saturating_add(extents - old.min(extents) - taken);
    after.raw.frextents = free.into();
    Ok(after)
}

fn too_many(blocks: u64) -> Error {
    let what = format!("a realtime section of {blocks} blocks in groups of this size");
    Error::unsupported(what, "the maximum is 2^32 groups; create a new image with larger groups")
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::format::superblock::RawSuperblock;

    fn superblock(blocks: u64, extent_blocks: u32, group_extents: u32) -> Superblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.versionnum = 5.into();
        (raw.blocksize, raw.blocklog) = (4096.into(), 12);
        raw.rextsize = extent_blocks.into();
        raw.rblocks = blocks.into();
        raw.rextents = (blocks / u64::from(extent_blocks)).into();
        raw.rgextents = group_extents.into();
        raw.rgblklog = 20;
        if group_extents != 0 {
            raw.features_incompat = Incompat::METADIR.bits().into();
            let of_group = u64::from(group_extents * extent_blocks);
            raw.rgcount = (blocks.div_ceil(of_group) as u32).into();
        }
        Superblock { features: raw.features(), raw }
    }

    fn grown(sb: &Superblock, blocks: u64) -> RealtimeGrowth {
        RealtimeGrowth::of(sb, (blocks << 12) + 4095).unwrap()
    }

    #[test]
    fn sizes_are_whole_extents_and_groups() {
        assert_eq!(grown(&superblock(100, 4, 0), 203).blocks_after, 200);
        assert!(!grown(&superblock(103, 4, 0), 103).is_change());
        let groups = superblock(100, 4, 10);
        let after = grown(&groups, 203);
        assert_eq!((after.groups_before, after.groups_after, after.blocks_after), (3, 5, 200));
        // One extent is too little for a group.
        assert_eq!(grown(&groups, 204).blocks_after, 200);
        assert_eq!(grown(&groups, 208).blocks_after, 208);
        assert_eq!(grown(&groups, 104).blocks_after, 104);
    }

    #[test]
    fn invalid_sizes_and_features_are_refused() {
        let refused = |sb: &Superblock, blocks: u64| {
            RealtimeGrowth::of(sb, blocks << 12).unwrap_err().to_string()
        };
        assert!(refused(&superblock(100, 1, 0), 99).contains("shrinking the realtime section"));
        assert!(refused(&superblock(100, 1, 0), 1 << 32).contains("4294967296 extents"));
        let mut plain = superblock(0, 1, 0);
        plain.raw.features_ro_compat = RoCompat::RMAPBT.bits().into();
        plain.features = plain.raw.features();
        assert!(refused(&plain, 100).contains("without metadir"));
    }

    #[test]
    fn free_extents_are_counted() {
        let none = superblock(0, 4, 10);
        assert_eq!(with_blocks(&none, 100).unwrap().raw.frextents.get(), 24);
        let mut some = superblock(100, 4, 10);
        some.raw.frextents = 7.into();
        let after = with_blocks(&some, 200).unwrap().raw;
        assert_eq!((after.frextents.get(), after.rextslog, after.rgcount.get()), (32, 5, 5));
    }
}
