//! Orders the units of metadata: first those that were read, in that order, then the others.

use std::ops::Range;

use disk::ranges::merged;

/// Unit of a bundle in bytes.
pub(super) const UNIT_BYTES: u64 = remote::bundle::format::UNIT_BYTES;

/// Units that may be added to a plan, and those that were.
pub(super) struct Order {
    /// Sorted ranges without gaps of zero, in units.
    allowed: Vec<Range<u64>>,
    /// Number of units before each range.
    before: Vec<u64>,
    /// One bit for each allowed unit.
    added: Vec<u64>,
    plan: Vec<Range<u64>>,
}

impl Order {
    /// Allows the units that overlap `parts`, which are in bytes.
    pub(super) fn of(parts: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut ranges: Vec<Range<u64>> = parts.into_iter().map(units).collect();
        ranges.retain(|range| !range.is_empty());
        let allowed = merged(ranges, 0);
        let mut count = 0;
        let mut before = Vec::with_capacity(allowed.len());
        for range in &allowed {
            before.push(count);
            count += range.end - range.start;
        }
        let added = vec![0; usize::try_from(count.div_ceil(64)).unwrap_or(usize::MAX)];
        Self { allowed, before, added, plan: Vec::new() }
    }

    /// Adds the allowed units that overlap `part`, which is in bytes, unless they were added before.
    pub(super) fn add(&mut self, part: Range<u64>) {
        let part = units(part);
        let mut number = self.allowed.partition_point(|range| range.end <= part.start);
        while let Some(range) = self.allowed.get(number).filter(|range| range.start < part.end) {
            let base = self.before[number];
            let first = range.start;
            for unit in part.start.max(first)..part.end.min(range.end) {
                self.add_unit(unit, base + unit - first);
            }
            number += 1;
        }
    }

    fn add_unit(&mut self, unit: u64, rank: u64) {
        let (word, bit) = (&mut self.added[(rank / 64) as usize], 1 << (rank % 64));
        if *word & bit != 0 {
            return;
        }
        *word |= bit;
        match self.plan.last_mut() {
            Some(last) if last.end == unit => last.end += 1,
            _ => self.plan.push(unit..unit + 1),
        }
    }

    /// Returns the added units, in bytes.
    pub(super) fn into_parts(self) -> Vec<Range<u64>> {
        let bytes = |range: Range<u64>| range.start * UNIT_BYTES..range.end * UNIT_BYTES;
        self.plan.into_iter().map(bytes).collect()
    }
}

fn units(part: Range<u64>) -> Range<u64> {
    if part.is_empty() { 0..0 } else { part.start / UNIT_BYTES..part.end.div_ceil(UNIT_BYTES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_added_once_and_only_if_allowed() {
        let parts = [9000..9001, 40_960..81_920, 4096..8192, 81_920..81_930, 5..5];
        let mut order = Order::of(parts);
        for part in [40_960..45_056, 0..100_000, 8192..8193] {
            order.add(part);
        }
        assert_eq!(order.into_parts(), [40_960..45_056, 4096..12_288, 45_056..86_016]);
    }
}
