//! Encryption contexts: the attribute `c` of index 9, which describes how an inode is encrypted.
//!
//! Source: kernel Documentation/filesystems/fscrypt.rst. Version 1 has 28 bytes: version, two modes, flags, an 8-byte
//! key descriptor. Version 2 has 40 bytes: version, two modes, flags, 4 more bytes, a 16-byte key identifier. Both end
//! with a nonce of 16 bytes. The bytes before the nonce are the policy, which files inherit from their directory.

/// `e_name_index` and the rest of the name of the attribute.
pub(crate) const NAME: (u8, &[u8]) = (9, b"c");

/// Size of the nonce in bytes.
const NONCE_SIZE: usize = 16;
/// Size of a context by version, in bytes.
const SIZES: [(u8, usize); 2] = [(1, 28), (2, 40)];

/// Policy of an inode: its context without the nonce. Shorter policies are padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Policy([u8; 24]);

/// Result of parsing a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// A known version with the right size.
    Known(Policy),
    /// An unknown, possibly newer version.
    Unknown,
    /// Too short or too long for its version.
    Damaged,
}

/// Parses the value of the attribute.
#[must_use]
pub(crate) fn read(value: &[u8]) -> Context {
    let Some(version) = value.first().filter(|version| **version != 0) else {
        return Context::Damaged;
    };
    let Some((_, size)) = SIZES.iter().find(|(known, _)| known == version) else {
        return Context::Unknown;
    };
    if value.len() != *size {
        return Context::Damaged;
    }
    let mut policy = [0; 24];
    let stored = &value[..size - NONCE_SIZE];
    policy[..stored.len()].copy_from_slice(stored);
    Context::Known(Policy(policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_differ_by_their_policies_only() {
        let (mut one, mut two) = ([7; 28], [7; 40]);
        (one[0], two[0]) = (1, 2);
        let first = read(&one);
        one[27] = 0;
        assert_eq!(read(&one), first);
        one[11] = 0;
        assert_ne!(read(&one), first);
        assert!(matches!(read(&two), Context::Known(_)));
        for (bytes, expected) in [
            (&[][..], Context::Damaged),
            (&[0; 28], Context::Damaged),
            (&one[..27], Context::Damaged),
            (&two[..28], Context::Damaged),
            (&[3; 40], Context::Unknown),
        ] {
            assert_eq!(read(bytes), expected);
        }
    }
}
