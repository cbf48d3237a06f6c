//! Images that are shorter than their file system.

use crate::format::superblock::{AG_BLOCKS_MIN, RawSuperblock};

/// Returns the superblock of a file system cut to `device_len` bytes; unchanged if it fits. A last group smaller than
/// the minimum is dropped. `None` if not even the first group is left.
pub(crate) fn fitted(raw: &RawSuperblock, device_len: u64) -> Option<RawSuperblock> {
    let there = device_len.checked_shr(raw.blocklog.into())?;
    if raw.dblocks.get() <= there {
        return Some(raw.clone());
    }
    let ag_blocks = u64::from(raw.agblocks.get());
    let (whole, rest) = (there.checked_div(ag_blocks)?, there % ag_blocks);
    let has_last = rest >= u64::from(AG_BLOCKS_MIN);
    let blocks = if has_last { there } else { whole * ag_blocks };
    let ag_count = u32::try_from(whole + u64::from(has_last)).ok()?;
    (ag_count > 0).then(|| RawSuperblock {
        dblocks: blocks.into(),
        agcount: ag_count.into(),
        ..raw.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_file_system_ends_where_its_image_does() {
        let mut raw = RawSuperblock::new_zeroed();
        (raw.blocklog, raw.agblocks) = (12, 1000.into());
        (raw.dblocks, raw.agcount) = (3500.into(), 4.into());
        let fitted = |blocks: u64| {
            let raw = fitted(&raw, blocks << 12)?;
            Some((raw.dblocks.get(), raw.agcount.get()))
        };
        assert_eq!(fitted(3500), Some((3500, 4)));
        assert_eq!(fitted(9000), Some((3500, 4)));
        assert_eq!(fitted(3499), Some((3499, 4)));
        assert_eq!(fitted(3063), Some((3000, 3)));
        assert_eq!(fitted(2064), Some((2064, 3)));
        assert_eq!(fitted(64), Some((64, 1)));
        assert_eq!(fitted(63), None);
    }
}
