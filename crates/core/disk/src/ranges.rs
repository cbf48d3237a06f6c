//! Lists of ranges.

use std::ops::Range;

/// Sorts ranges, and merges those that overlap or are at most `gap` apart.
#[must_use]
pub fn merged(mut ranges: Vec<Range<u64>>, gap: u64) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let is_near = next.start <= last.end.saturating_add(gap);
        if is_near {
            last.end = last.end.max(next.end);
        }
        is_near
    });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_merged_up_to_the_gap() {
        let ranges = vec![70..71, 20..30, 0..10, 5..40, 71..79, 90..95];
        assert_eq!(merged(ranges.clone(), 0), [0..40, 70..79, 90..95]);
        assert_eq!(merged(ranges.clone(), 11), [0..40, 70..95]);
        assert_eq!(merged(ranges, u64::MAX).len(), 1);
        assert_eq!(merged(vec![9..u64::MAX, 0..1, 10..12], 7), [0..1, 9..u64::MAX]);
        assert!(merged(Vec::new(), 1).is_empty());
    }
}
