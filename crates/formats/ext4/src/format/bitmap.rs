//! Common rules of allocation bitmaps: bit `n` is bit `n % 8` of byte `n / 8`; a set bit is in use.

use std::ops::Range;

use engine::Corruption;

/// Verifies a bitmap before it is written: the unused bits from `len` on and the bits of `taken` must be set.
///
/// # Errors
/// The first bit that is not set.
pub(crate) fn verify_structure(
    name: &'static str,
    bitmap: &[u8],
    len: u32,
    taken: impl IntoIterator<Item = Range<u32>>,
) -> Result<(), Corruption> {
    let is_clear = |bit: u32| {
        let expected = format_args!("bit {bit} set").to_string();
        Corruption::new(name, "blocks in use are marked as free").mismatch(expected, "clear")
    };
    let past_end = len..bitmap.len() as u32 * 8;
    match taken.into_iter().chain([past_end]).find_map(|range| first_clear(bitmap, range)) {
        Some(bit) => Err(is_clear(bit)),
        None => Ok(()),
    }
}

/// Returns the first clear bit of `range`. Compares whole bytes where possible.
fn first_clear(bitmap: &[u8], range: Range<u32>) -> Option<u32> {
    let is_clear =
        |bit: &u32| bitmap.get(*bit as usize / 8).is_some_and(|b| b >> (bit % 8) & 1 == 0);
    let head_end = range.start.next_multiple_of(8).min(range.end);
    let tail_start = (range.end / 8 * 8).max(head_end);
    let whole = bitmap.get(head_end as usize / 8..tail_start as usize / 8).unwrap_or_default();
    // First check all bytes, which is fast. The position matters only if a bit is clear.
    let body = if whole.iter().fold(0xff, |all, byte| all & byte) == 0xff {
        None
    } else {
        (head_end..tail_start).find(is_clear)
    };
    (range.start..head_end)
        .find(is_clear)
        .or(body)
        .or_else(|| (tail_start..range.end).find(is_clear))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_clear_bit_is_found(
            bits in proptest::collection::vec(prop_oneof![8 => Just(0xff), 1 => any::<u8>()], 1..40),
            start in 0_u32..320, len in 0_u32..320,
        ) {
            let range = start..(start + len).min(bits.len() as u32 * 8);
            let bit = |at: &u32| bits[*at as usize / 8] >> (at % 8) & 1 == 0;
            prop_assert_eq!(first_clear(&bits, range.clone()), range.clone().find(bit));
        }
    }

    #[test]
    fn bits_past_the_end_are_set() {
        let mut bitmap = [0xff; 16];
        bitmap[2] = 0;
        let verify = |bitmap: &[u8], len, end| {
            verify_structure("bitmap", bitmap, len, std::iter::once(0..end))
        };
        assert!(verify(&bitmap, 100, 16).is_ok());
        assert!(verify(&bitmap, 20, 16).is_err());
        let fault = verify(&bitmap, 100, 17).unwrap_err();
        assert!(fault.to_string().contains("bit 16"), "{fault}");
    }
}
