//! Derives free space and owners from the claims on the blocks of a group.

use crate::btree::records::{FreeRun, RmapRecord};
use crate::check::survey::Claim;
use crate::format::address::AgBlock;

/// Returns the blocks below `length` that are not claimed. The claims must be sorted.
pub(super) fn gaps(claims: &[Claim], length: u32) -> Vec<FreeRun> {
    let (mut free, mut end) = (Vec::new(), 0_u32);
    let mut gap = |from: u32, to: u32| {
        if to > from {
            free.push(FreeRun { start: AgBlock(from), len: to - from });
        }
    };
    for claim in claims {
        gap(end, claim.start.min(length));
        end = end.max(claim.start.saturating_add(claim.len));
    }
    gap(end, length);
    free
}

/// Converts claims to reverse-map records, joined if contiguous.
pub(super) fn joined(claims: &[Claim]) -> Vec<RmapRecord> {
    let mut all: Vec<&Claim> = claims.iter().collect();
    all.sort_unstable_by_key(|claim| (claim.kind(), claim.start));
    let mut records: Vec<(u64, RmapRecord)> = Vec::new();
    for claim in all {
        match records.last_mut() {
            Some((kind, last)) if *kind == claim.kind() && last.end() == u64::from(claim.start) => {
                last.len += claim.len;
            }
            _ => {
                let Claim { start, len, owner, offset, .. } = *claim;
                let record = RmapRecord { start: AgBlock(start), len, owner, offset };
                records.push((claim.kind(), record));
            }
        }
    }
    let mut records: Vec<RmapRecord> = records.into_iter().map(|(_, record)| record).collect();
    records.sort_unstable_by_key(RmapRecord::key);
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btree::records::rmap_offset;

    const fn claim(start: u32, len: u32, owner: u64, offset: u64) -> Claim {
        Claim { ag: 0, start, len, owner, offset }
    }

    #[test]
    fn unclaimed_blocks_are_free() {
        let claims = [
            claim(10, 10, 1, 0),
            claim(10, 10, 2, 100),
            claim(15, 10, 3, 0),
            claim(15, 5, 4, rmap_offset::ATTR_FORK),
        ];
        let free: Vec<_> = gaps(&claims, 30).iter().map(|run| (run.start.0, run.len)).collect();
        assert_eq!(free, [(0, 10), (25, 5)]);
    }

    #[test]
    fn neighbours_of_one_owner_are_joined() {
        let claims =
            [claim(10, 5, 1, 0), claim(15, 5, 1, 5), claim(20, 5, 1, 50), claim(25, 1, 2, 10)];
        let found: Vec<_> = joined(&claims).iter().map(|r| (r.start.0, r.len)).collect();
        assert_eq!(found, [(10, 10), (20, 5), (25, 1)]);
    }
}
