//! Computes the size after growing, without I/O.

use vfs::{Error, Result};

use crate::format::address::AgNumber;
use crate::format::superblock::{AGS_MAX, Superblock};
use crate::mkfs::SMALL_SIZE_MIN;

/// Size of a file system before and after growing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// Block size in bytes.
    pub block_size: u32,
    /// Blocks before.
    pub blocks_before: u64,
    /// Blocks after.
    pub blocks_after: u64,
    /// Allocation groups before.
    pub groups_before: u32,
    /// Allocation groups after.
    pub groups_after: u32,
    /// Blocks of every group except the last.
    pub group_blocks: u32,
}

impl Growth {
    /// Computes the growth to a size in bytes.
    pub(super) fn of(sb: &Superblock, size_bytes: u64) -> Result<Self> {
        let raw = &sb.raw;
        let (group_blocks, before) = (raw.agblocks.get(), raw.dblocks.get());
        let wanted = size_bytes >> raw.blocklog;
        if wanted < before {
            let what = format!(
                "shrinking XFS in place (from {} to {size_bytes} bytes)",
                before << raw.blocklog
            );
            let advice = "create a smaller image: diskwright convert IN OUT --size min";
            return Err(Error::unsupported(what, advice));
        }
        let after = rounded(wanted, group_blocks, raw.agcount.get(), raw.blocklog).max(before);
        let groups = after.div_ceil(group_blocks.into());
        let groups_after = u32::try_from(groups).ok().filter(|groups| *groups <= AGS_MAX);
        let groups_after = groups_after.ok_or_else(|| too_many(groups))?;
        Ok(Self {
            block_size: raw.blocksize.get(),
            blocks_before: before,
            blocks_after: after,
            groups_before: raw.agcount.get(),
            groups_after,
            group_blocks,
        })
    }

    /// Returns whether the size changes.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        self.blocks_after != self.blocks_before
    }

    /// Returns the size after, in bytes: the requested size, or less if the rest is too small for a group.
    #[must_use]
    pub const fn bytes_after(&self) -> u64 {
        self.blocks_after * self.block_size as u64
    }

    /// Returns the group that was the last one before.
    pub(super) const fn last_group(&self) -> AgNumber {
        AgNumber(self.groups_before - 1)
    }

    /// Returns the number of blocks of a group, if the file system has `blocks` blocks.
    fn group_len(&self, ag: AgNumber, blocks: u64) -> u32 {
        let start = u64::from(ag.0) * u64::from(self.group_blocks);
        blocks.saturating_sub(start).min(self.group_blocks.into()) as u32
    }

    /// Returns the number of blocks by which the previously last group grows.
    pub(super) fn last_group_gets(&self) -> u32 {
        let len = |blocks| self.group_len(self.last_group(), blocks);
        len(self.blocks_after) - len(self.blocks_before)
    }

    /// Returns the groups to be added.
    pub(super) fn new_groups(&self) -> impl Iterator<Item = AgNumber> + use<> {
        (self.groups_before..self.groups_after).map(AgNumber)
    }
}

/// Returns `blocks` without a new last group that is smaller than mkfs.xfs makes them.
fn rounded(blocks: u64, group_blocks: u32, groups_before: u32, block_log: u8) -> u64 {
    let least = (SMALL_SIZE_MIN >> block_log).min(group_blocks.into());
    let (whole, rest) = (blocks / u64::from(group_blocks), blocks % u64::from(group_blocks));
    if whole >= groups_before.into() && rest < least { blocks - rest } else { blocks }
}

/// Returns the error for too many groups.
fn too_many(groups: u64) -> Error {
    Error::unsupported(
        format!("growing to {groups} allocation groups"),
        "the maximum is 2^20; create an image with larger groups with diskwright convert IN OUT",
    )
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::format::superblock::RawSuperblock;

    fn superblock(blocks: u64, group_blocks: u32) -> Superblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.blocksize = 4096.into();
        raw.blocklog = 12;
        raw.dblocks = blocks.into();
        raw.agblocks = group_blocks.into();
        raw.agcount = (blocks.div_ceil(group_blocks.into()) as u32).into();
        raw.agblklog = group_blocks.next_power_of_two().trailing_zeros() as u8;
        Superblock { features: raw.features(), raw }
    }

    fn growth(blocks: u64, group_blocks: u32, wanted: u64) -> Growth {
        Growth::of(&superblock(blocks, group_blocks), (wanted << 12) + 4095).unwrap()
    }

    #[test]
    fn the_last_group_becomes_whole_before_others_follow() {
        let grown = growth(50_000, 20_000, 55_000);
        assert_eq!((grown.groups_before, grown.groups_after), (3, 3));
        assert_eq!((grown.blocks_after, grown.last_group_gets()), (55_000, 5_000));
        let grown = growth(50_000, 20_000, 100_001);
        assert_eq!((grown.groups_after, grown.last_group_gets()), (5, 10_000));
        assert_eq!(grown.new_groups().collect::<Vec<_>>(), [AgNumber(3), AgNumber(4)]);
        assert_eq!(grown.blocks_after, 100_000);
    }

    #[test]
    fn a_rest_too_small_for_a_group_is_left_out() {
        assert!(!growth(40_000, 20_000, 40_000 + 4095).is_change());
        assert_eq!(growth(40_000, 20_000, 40_000 + 4096).groups_after, 3);
        // An existing last group may grow by any number of blocks.
        assert_eq!(growth(40_100, 20_000, 40_101).blocks_after, 40_101);
        // Groups may be smaller than mkfs makes them today.
        assert_eq!(growth(1_000, 1_000, 2_000).groups_after, 2);
        assert_eq!(growth(1_000, 1_000, 2_999).groups_after, 2);
    }

    #[test]
    fn invalid_sizes_are_refused() {
        let sb = superblock(40_000, 20_000);
        assert!(!growth(40_000, 20_000, 40_000).is_change());
        let smaller = Growth::of(&sb, 39_999 << 12).unwrap_err().to_string();
        assert!(smaller.contains("shrinking XFS in place"), "{smaller}");
        let many = Growth::of(&sb, u64::MAX >> 1).unwrap_err().to_string();
        assert!(many.contains("112589990685 allocation groups"), "{many}");
    }
}
