//! SHA-256 digests, which name chunks, manifests and bundles.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; Self::BYTES]);

impl Digest {
    /// Size of a digest in bytes.
    pub(crate) const BYTES: usize = 32;

    /// Returns the digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Describes contents with another digest.
    pub(crate) fn differs_from(self, found: Self) -> String {
        format!("wrong SHA-256 (expected {self}, found {found})")
    }

    /// Parses 64 lowercase hexadecimal digits. Returns `None` for any other text, so that a digest has exactly one
    /// name.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
        let mut bytes = [0; Self::BYTES];
        if pairs.len() != bytes.len() {
            return None;
        }
        for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(high)? << 4 | digit(low)?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Text of 64 hexadecimal digits.
impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("expected a SHA-256 digest"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of(b"abc").to_string(), text);
        assert_eq!(Digest::parse(text), Some(Digest::of(b"abc")));
    }

    #[test]
    fn a_digest_has_one_name() {
        let text = Digest::of(b"abc").to_string();
        for wrong in
            [&text[1..], &text.to_uppercase(), &format!("{text}0"), "", &text.replace('b', "g")]
        {
            assert_eq!(Digest::parse(wrong), None, "{wrong}");
        }
    }
}
