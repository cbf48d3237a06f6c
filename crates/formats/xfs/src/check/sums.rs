//! Sums that show whether two lists contain the same items in any order, without storing either list.
//!
//! Each item adds a pseudo-random number that depends on all of it. Two lists with the same sum have the same items,
//! except with a probability of 2^-64. If sums differ, both lists are collected and compared.

/// Mixes two numbers so that every bit of the result depends on all bits of them.
pub(super) const fn mix(a: u64, b: u64) -> u64 {
    let mut x = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Mixes bytes and a number.
pub(super) fn mix_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = mix(seed, bytes.len() as u64);
    for word in words {
        sum = mix(sum, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(sum, u64::from_le_bytes(last))
}

/// Returns the share of the half-open range `start..end` of a kind. The shares of contiguous ranges add up to that of
/// the joined range.
pub(super) const fn range(kind: u64, start: u64, end: u64) -> u64 {
    mix(kind, start).wrapping_sub(mix(kind, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_add_up_however_they_are_cut() {
        let whole = range(7, 10, 30);
        assert_eq!(range(7, 10, 20).wrapping_add(range(7, 20, 30)), whole);
        assert_ne!(range(8, 10, 20).wrapping_add(range(7, 20, 30)), whole);
        assert_ne!(range(7, 10, 31), whole);
    }

    #[test]
    fn bytes_differ_by_length_and_place() {
        let all = [&b""[..], b"\0", b"a", b"a\0", b"\0a", b"abcdefgh", b"abcdefgh\0"];
        for (i, a) in all.iter().enumerate() {
            for b in &all[..i] {
                assert_ne!(mix_bytes(1, a), mix_bytes(1, b), "{a:?} {b:?}");
            }
            assert_ne!(mix_bytes(1, a), mix_bytes(2, a));
        }
    }
}
