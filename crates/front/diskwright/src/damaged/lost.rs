//! Lost ranges of a file.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;

use serde::Serialize;

/// Maximum number of ranges that are kept.
const RANGES_MAX: usize = 1000;

/// Maximum number of ranges in a line of text.
const SHOWN_MAX: usize = 8;

/// A range of bytes that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LostRange {
    /// First byte in the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Ranges of a file that cannot be read, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LostRanges {
    /// Total length in bytes.
    #[serde(rename = "lost_bytes")]
    pub bytes: u64,
    /// The first 1000 ranges.
    #[serde(rename = "lost")]
    pub ranges: Vec<LostRange>,
    /// Number of further ranges.
    #[serde(rename = "lost_left_out", skip_serializing_if = "is_zero")]
    pub left_out: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl LostRanges {
    /// Adds a range behind those before it.
    pub(crate) fn add(&mut self, range: Range<u64>) {
        let (offset, bytes) = (range.start, range.end.saturating_sub(range.start));
        if bytes == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        let has_room = self.ranges.len() < RANGES_MAX;
        match self.ranges.last_mut() {
            Some(last) if last.offset + last.bytes == offset && self.left_out == 0 => {
                last.bytes += bytes;
            }
            _ if has_room => self.ranges.push(LostRange { offset, bytes }),
            _ => self.left_out += 1,
        }
    }
}

/// Shows ranges as `offset+bytes`.
impl Display for LostRanges {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (nth, range) in self.ranges.iter().take(SHOWN_MAX).enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            write!(f, "{comma}{}+{}", range.offset, range.bytes)?;
        }
        match self.ranges.len().saturating_sub(SHOWN_MAX) as u64 + self.left_out {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one_and_many_are_counted() {
        let mut lost = LostRanges::default();
        lost.add(0..10);
        lost.add(10..20);
        lost.add(20..20);
        lost.add(30..31);
        assert_eq!((lost.to_string(), lost.bytes), ("0+20, 30+1".into(), 21));
        (1..2000_u64).for_each(|nth| lost.add(100 * nth..100 * nth + 1));
        assert_eq!((lost.ranges.len(), lost.left_out), (1000, 1001));
        assert!(lost.to_string().ends_with("500+1, 600+1 and 1993 more"), "{lost}");
    }
}
