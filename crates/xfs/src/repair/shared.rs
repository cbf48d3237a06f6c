//! What claims on the blocks of a group add up to: what is free, who has what, and what is shared.

use crate::btree::records::{FreeRun, RefcountRecord, RmapRecord, rmap_offset, rmap_owner};
use crate::check::survey::Claim;
use crate::format::address::AgBlock;

/// Blocks below `length` that nobody claims. The claims are in order.
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

/// Claims as records of a reverse map: those that follow each other joined.
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

/// Whether blocks claimed so may have other owners, too: written data of files.
const fn may_be_shared(claim: &Claim) -> bool {
    let flags = rmap_offset::ATTR_FORK | rmap_offset::BMBT_BLOCK | rmap_offset::UNWRITTEN;
    !rmap_owner::is_none_of_inodes(claim.owner) && claim.offset & flags == 0
}

/// How often blocks are referred to that are more than once.
pub(super) fn references(claims: &[Claim]) -> Vec<RefcountRecord> {
    let mut edges: Vec<(u32, i64)> = Vec::new();
    for claim in claims.iter().filter(|claim| may_be_shared(claim)) {
        edges.push((claim.start, 1));
        edges.push((claim.start.saturating_add(claim.len), -1));
    }
    edges.sort_unstable();
    let mut records: Vec<RefcountRecord> = Vec::new();
    let (mut count, mut from) = (0_i64, 0);
    for same in edges.chunk_by(|a, b| a.0 == b.0) {
        let at = same[0].0;
        if count > 1 && at > from {
            add(&mut records, from, at - from, u32::try_from(count).unwrap_or(u32::MAX));
        }
        count += same.iter().map(|(_, change)| change).sum::<i64>();
        from = at;
    }
    records
}

fn add(records: &mut Vec<RefcountRecord>, start: u32, len: u32, count: u32) {
    match records.last_mut() {
        Some(last) if last.start.0 + last.len == start && last.count == count => last.len += len,
        _ => records.push(RefcountRecord { start: AgBlock(start), cow: false, len, count }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn claim(start: u32, len: u32, owner: u64, offset: u64) -> Claim {
        Claim { ag: 0, start, len, owner, offset }
    }

    #[test]
    fn references_are_counted_where_claims_overlap() {
        let claims = [
            claim(10, 10, 1, 0),
            claim(10, 10, 2, 100),
            claim(15, 10, 3, 0),
            claim(15, 5, 4, rmap_offset::ATTR_FORK),
        ];
        let found: Vec<_> =
            references(&claims).iter().map(|r| (r.start.0, r.len, r.count)).collect();
        assert_eq!(found, [(10, 5, 2), (15, 5, 3)]);
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
