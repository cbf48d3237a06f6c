//! The hash of names in directories and attributes (`xfs_da_hashname`).

/// Returns the hash of a name.
pub fn name_hash(name: &[u8]) -> u32 {
    let (words, rest) = name.as_chunks::<4>();
    let mut hash = 0_u32;
    for word in words {
        let [a, b, c, d] = word.map(u32::from);
        hash = a << 21 ^ b << 14 ^ c << 7 ^ d ^ hash.rotate_left(28);
    }
    match *rest {
        [a, b, c] => u32::from(a) << 14 ^ u32::from(b) << 7 ^ u32::from(c) ^ hash.rotate_left(21),
        [a, b] => u32::from(a) << 7 ^ u32::from(b) ^ hash.rotate_left(14),
        [a] => u32::from(a) ^ hash.rotate_left(7),
        _ => hash,
    }
}

/// Folds a byte of a name for case-insensitive directories: converts letters of ASCII and of Latin-1 to lower case.
/// Bytes of UTF-8 sequences may change, too; the result is only used for comparison.
pub(crate) const fn fold(byte: u8) -> u8 {
    match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => byte + 32,
        _ => byte,
    }
}

/// Returns the hash of a name in a case-insensitive directory.
pub fn folded_hash(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| u32::from(fold(byte)) ^ hash.rotate_left(7))
}

/// Returns whether two names are equal in a case-insensitive directory.
pub(crate) fn folded_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(&a, &b)| fold(a) == fold(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        // Values in the leaves of directories made by mkfs.xfs.
        assert_eq!(name_hash(b"."), 0x2e);
        assert_eq!(name_hash(b".."), 0x172e);
        assert_eq!(name_hash(b"abcd"), 0x61 << 21 ^ 0x62 << 14 ^ 0x63 << 7 ^ 0x64);
        assert_eq!(folded_hash(b"AbC"), folded_hash(b"aBc"));
        assert_eq!(folded_hash(b"abcd"), name_hash(b"abcd"));
    }

    #[test]
    fn case_is_folded_for_letters_alone() {
        assert!(folded_eq(b"A\xc4z[", b"a\xe4Z["));
        assert!(!folded_eq(b"\xd7", b"\xf7") && !folded_eq(b"@", b"`") && !folded_eq(b"a", b"ab"));
    }
}
