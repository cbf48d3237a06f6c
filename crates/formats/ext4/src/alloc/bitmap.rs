//! Bit arithmetic on allocation bitmaps. Bit `n` is bit `n % 8` of byte `n / 8`; a set bit is in use.
//!
//! Each function takes the number of valid bits of the bitmap (`len`), which never exceeds its bytes. Searches take a
//! [`Bits`]: a bitmap together with the free bits that must not be allocated yet.

use std::ops::Range;

/// A bitmap to search and up to two overlays. A bit that is set in any of them is in use.
#[derive(Clone, Copy)]
pub(crate) struct Bits<'b> {
    pub(crate) bitmap: &'b [u8],
    pub(crate) busy: [Option<&'b [u8]>; 2],
}

impl<'b> Bits<'b> {
    /// Returns a bitmap without overlays.
    pub(crate) fn plain(bitmap: &'b [u8]) -> Self {
        Self { bitmap, busy: [None; 2] }
    }

    fn word(&self, at: u32) -> u64 {
        let busy = self.busy.iter().flatten().fold(0, |all, bits| all | word(bits, at));
        word(self.bitmap, at) | busy
    }
}

/// Reads the 64 bits of word `word`. Bits past the end read as in use.
fn word(bits: &[u8], word: u32) -> u64 {
    let at = word as usize * 8;
    match bits.get(at..at + 8) {
        Some(bytes) => u64::from_le_bytes(bytes.try_into().unwrap_or([0xff; 8])),
        None => {
            let mut bytes = [0xff; 8];
            let rest = bits.get(at..).unwrap_or_default();
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_le_bytes(bytes)
        }
    }
}

/// Returns whether all bits of `range` are set.
pub(crate) fn all_set(bits: &[u8], range: Range<u32>) -> bool {
    find(Bits::plain(bits), range.start, range.end, false).is_none()
}

/// Returns the first bit in `from..len` whose value is `in_use`.
fn find(bits: Bits<'_>, from: u32, len: u32, in_use: bool) -> Option<u32> {
    let flip = if in_use { 0 } else { u64::MAX };
    let mut at = from;
    while at < len {
        let found = (bits.word(at / 64) ^ flip) >> (at % 64);
        if found != 0 {
            let bit = at + found.trailing_zeros();
            return (bit < len).then_some(bit);
        }
        at = (at / 64 + 1) * 64;
    }
    None
}

/// Returns the first free bit from `from` on.
pub(crate) fn find_free(bits: Bits<'_>, from: u32, len: u32) -> Option<u32> {
    find(bits, from, len, false)
}

/// Returns the first free run from `from` on with at least `wanted` bits, cut to `wanted`. If there is none, returns
/// the longest run.
pub(crate) fn find_free_run(
    bits: Bits<'_>,
    from: u32,
    len: u32,
    wanted: u32,
) -> Option<Range<u32>> {
    let mut best: Option<Range<u32>> = None;
    let mut at = from;
    while let Some(start) = find_free(bits, at, len) {
        let limit = len.min(start.saturating_add(wanted));
        let end = find(bits, start, limit, true).unwrap_or(limit);
        if end - start >= wanted {
            return Some(start..end);
        }
        if best.as_ref().is_none_or(|b| end - start > b.end - b.start) {
            best = Some(start..end);
        }
        at = end;
    }
    best
}

/// Returns the whole of the first free run from `from` on.
pub(crate) fn next_free_run(bits: Bits<'_>, from: u32, len: u32) -> Option<Range<u32>> {
    let start = find_free(bits, from, len)?;
    Some(start..find(bits, start, len, true).unwrap_or(len))
}

/// Marks `range` in use in `bytes`, whose first bit is `base`.
pub(crate) fn set(bytes: &mut [u8], base: u32, range: Range<u32>) {
    change(bytes, base, range, |byte, mask| *byte |= mask);
}

/// Marks `range` free in `bytes`, whose first bit is `base`.
pub(crate) fn clear(bytes: &mut [u8], base: u32, range: Range<u32>) {
    change(bytes, base, range, |byte, mask| *byte &= !mask);
}

fn change(bytes: &mut [u8], base: u32, range: Range<u32>, apply: impl Fn(&mut u8, u8)) {
    let mut at = range.start;
    while at < range.end {
        let end = ((at / 8 + 1) * 8).min(range.end);
        let mask = (0xff_u32 >> (8 - (end - at))) << (at % 8);
        if let Some(byte) = bytes.get_mut(((at - base) / 8) as usize) {
            apply(byte, mask as u8);
        }
        at = end;
    }
}

/// Returns the byte range of a bitmap that contains `range`.
pub(crate) fn bytes_of(range: &Range<u32>) -> Range<usize> {
    (range.start / 8) as usize..(range.end.div_ceil(8)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bit(bits: &[u8], at: u32) -> bool {
        bits[at as usize / 8] >> (at % 8) & 1 == 1
    }

    proptest! {
        #[test]
        fn searches_agree_with_bit_by_bit(
            bits in proptest::collection::vec(prop_oneof![Just(0), Just(0xff), any::<u8>()], 1..40),
            from in 0_u32..330, wanted in 1_u32..70,
        ) {
            let len = bits.len() as u32 * 8 - 3;
            prop_assert_eq!(find_free(Bits::plain(&bits), from, len), (from..len).find(|&b| !bit(&bits, b)));
            let run = find_free_run(Bits::plain(&bits), from, len, wanted);
            let fits = |n: u32| (from..len).find(|&s| s + n <= len && (s..s + n).all(|b| !bit(&bits, b)));
            match run {
                None => prop_assert_eq!(fits(1), None),
                Some(run) => {
                    let n = run.end - run.start;
                    prop_assert!(run.clone().all(|b| !bit(&bits, b)));
                    prop_assert!(n <= wanted && run.start >= from && run.end <= len);
                    prop_assert_eq!(fits(n), Some(run.start));
                    prop_assert!(n == wanted || fits(n + 1).is_none());
                }
            }
        }

        #[test]
        fn changes_touch_exactly_their_bits(start in 0_u32..200, len in 0_u32..100) {
            let range = start..start + len;
            let mut bits = vec![0; 40];
            let window = bytes_of(&range);
            let base = window.start as u32 * 8;
            set(&mut bits[window], base, range.clone());
            for b in 0..320 {
                prop_assert_eq!(bit(&bits, b), range.contains(&b));
            }
            prop_assert!(all_set(&bits, range.clone()));
            prop_assert!(!all_set(&bits, range.start..range.end + 1));
            clear(&mut bits, 0, range);
            prop_assert!(bits.iter().all(|&byte| byte == 0));
        }
    }
}
