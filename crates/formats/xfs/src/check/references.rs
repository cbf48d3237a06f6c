//! Compares reference counts: the sum of the claims, and the records of the reference-count tree.

use std::collections::HashMap;

use vfs::check::Finding;
use vfs::{FileType, Ino};

use super::codes;
use super::context::Context;
use super::names;
use super::owners::{Claim, owner_name};
use crate::btree::records::{RefcountRecord, rmap_offset, rmap_owner};
use crate::format::address::AgBlock;

/// Maximum number of findings about one group.
const FINDINGS_MAX: usize = 200;

/// Returns whether the blocks of a claim may have other owners: written data of files.
const fn may_be_shared(claim: &Claim) -> bool {
    let flags = rmap_offset::ATTR_FORK | rmap_offset::BMBT_BLOCK | rmap_offset::UNWRITTEN;
    !rmap_owner::is_none_of_inodes(claim.owner) && claim.offset & flags == 0
}

/// Returns the records of blocks that the claims of a group refer to more than once.
pub(crate) fn counted<'c>(claims: impl Iterator<Item = &'c Claim>) -> Vec<RefcountRecord> {
    let mut edges: Vec<(u32, i64)> = Vec::new();
    for claim in claims.filter(|claim| may_be_shared(claim)) {
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

/// A run of blocks with a wrong reference count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) start: u32,
    pub(super) len: u32,
    /// Actual number of references; 0 if fewer than two.
    pub(super) expected: u64,
    /// Number of references in the tree; 0 without a record.
    pub(super) found: u64,
}

/// Returns the differences between records, sorted. Records of a damaged tree may overlap; their counts are added.
pub(super) fn differences(
    expected: &[RefcountRecord],
    found: &[RefcountRecord],
) -> Vec<Difference> {
    let mut edges: Vec<(u64, i64, i64)> = Vec::new();
    for (records, is_found) in [(expected, false), (found, true)] {
        for record in records {
            let count = i64::from(record.count);
            let change = |sign: i64| if is_found { (0, sign * count) } else { (sign * count, 0) };
            let start = u64::from(record.start.0);
            for (at, (e, f)) in [(start, change(1)), (start + u64::from(record.len), change(-1))] {
                edges.push((at, e, f));
            }
        }
    }
    edges.sort_unstable();
    let mut all: Vec<Difference> = Vec::new();
    let (mut counts, mut from) = ((0, 0), 0);
    for same in edges.chunk_by(|a, b| a.0 == b.0) {
        let at = same[0].0;
        if counts.0 != counts.1 && at > from {
            let (expected, found) = (counts.0 as u64, counts.1 as u64);
            let len = (at - from) as u32;
            match all.last_mut() {
                Some(last)
                    if u64::from(last.start) + u64::from(last.len) == from
                        && (last.expected, last.found) == (expected, found) =>
                {
                    last.len += len;
                }
                _ => all.push(Difference { start: from as u32, len, expected, found }),
            }
        }
        counts = same.iter().fold(counts, |sum, (_, e, f)| (sum.0 + e, sum.1 + f));
        from = at;
    }
    all
}

/// Reports wrong reference counts of a group. If they cannot be determined, reports the group.
pub(super) fn tell(
    ctx: &Context<'_>,
    ag: u32,
    claims: &[Claim],
    (found, is_cut): (&[RefcountRecord], bool),
) {
    let finding = || Finding::new(codes::REFERENCES).in_group(ag);
    let mut files: HashMap<u64, bool> = HashMap::new();
    let mut is_of_file = |claim: &&Claim| {
        *files.entry(claim.owner).or_insert_with(|| {
            let inode = names::read_inode(ctx, Ino(claim.owner));
            inode.and_then(|inode| inode.file_type()) == Some(FileType::Regular)
        })
    };
    let (of_files, others): (Vec<&Claim>, Vec<&Claim>) = (claims.iter())
        .filter(|claim| claim.ag == ag && may_be_shared(claim))
        .partition(|claim| is_of_file(claim));
    let is_cut = is_cut || tell_of_others(ctx, ag, &others, found);
    let differences = differences(&counted(of_files.into_iter()), found);
    if is_cut || differences.is_empty() {
        return ctx.found(finding());
    }
    let shown = |count: u64, none: &str| match count {
        0 => none.to_owned(),
        count => format!("{count} references"),
    };
    for difference in differences.iter().take(FINDINGS_MAX) {
        let Difference { start, len, expected, found } = *difference;
        let block = u64::from(ag) * u64::from(ctx.geometry.ag_blocks) + u64::from(start);
        let detail = format!("{len} blocks");
        let (expected, found) = (shown(expected, "fewer than two"), shown(found, "no record"));
        ctx.found(finding().at_block(block).detail(detail).mismatch(expected, found));
    }
}

/// Reports blocks that are marked shared, but have an owner that cannot share them. Returns whether there are any.
fn tell_of_others(ctx: &Context<'_>, ag: u32, others: &[&Claim], found: &[RefcountRecord]) -> bool {
    let mut shared: Vec<(u64, u64)> = found
        .iter()
        .map(|record| {
            (u64::from(record.start.0), u64::from(record.start.0) + u64::from(record.len))
        })
        .collect();
    shared.sort_unstable();
    let is_shared = |claim: &&&Claim| {
        let (start, end) = (u64::from(claim.start), u64::from(claim.start) + u64::from(claim.len));
        let at = shared.partition_point(|(_, shared_end)| *shared_end <= start);
        shared.get(at).is_some_and(|(shared_start, _)| *shared_start < end)
    };
    let mut any = false;
    for claim in others.iter().filter(is_shared).take(FINDINGS_MAX) {
        any = true;
        for at in claim.start..claim.start + claim.len {
            let has = |(start, end): &(u64, u64)| (*start..*end).contains(&at.into());
            if !shared.iter().any(has) {
                continue;
            }
            let block = u64::from(ag) * u64::from(ctx.geometry.ag_blocks) + u64::from(at);
            let finding = Finding::new(codes::SPACE_TWICE).in_group(ag).at_block(block);
            let name = owner_name(claim.owner, claim.offset);
            ctx.found(finding.of_inode(claim.owner).detail(format!("used by {name} and others")));
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn claim(start: u32, len: u32, owner: u64, offset: u64) -> Claim {
        Claim { ag: 0, start, len, owner, offset }
    }

    const fn record(start: u32, len: u32, count: u32) -> RefcountRecord {
        RefcountRecord { start: AgBlock(start), cow: false, len, count }
    }

    #[test]
    fn references_are_counted_where_claims_overlap() {
        let claims = [
            claim(10, 10, 1, 0),
            claim(10, 10, 2, 100),
            claim(15, 10, 3, 0),
            claim(15, 5, 4, rmap_offset::ATTR_FORK),
        ];
        assert_eq!(counted(claims.iter()), [record(10, 5, 2), record(15, 5, 3)]);
    }

    #[test]
    fn differences_are_extents() {
        let expected = [record(10, 10, 2), record(20, 10, 3), record(50, 5, 2)];
        let shown = |found: &[RefcountRecord]| -> Vec<(u32, u32, u64, u64)> {
            let all = differences(&expected, found);
            all.iter().map(|d| (d.start, d.len, d.expected, d.found)).collect()
        };
        assert_eq!(shown(&expected), []);
        // Regardless of the boundaries of records.
        let cut = [record(10, 3, 2), record(13, 7, 2), record(20, 10, 3), record(50, 5, 2)];
        assert_eq!(shown(&cut), []);
        let other = [record(10, 10, 2), record(20, 10, 2), record(45, 10, 2)];
        assert_eq!(shown(&other), [(20, 10, 3, 2), (45, 5, 0, 2)]);
        assert_eq!(shown(&[]), [(10, 10, 2, 0), (20, 10, 3, 0), (50, 5, 2, 0)]);
    }
}
