//! Checksums and digests of contents in a manifest.

use md5::Md5;
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::digest::DynDigest;
use sha2::{Sha256, Sha384, Sha512};

use crate::rule_file::fault::RuleFault;

/// The expected digest of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Digest {
    kind: DigestKind,
    expected: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DigestKind {
    /// The checksum of POSIX's `cksum`.
    Cksum,
    Md5,
    Rmd160,
    Sha1,
    Sha256,
    Sha384,
    Sha512,
}

/// Keywords of each kind, with the length of the digest in bytes.
const KEYWORDS: [(&[u8], DigestKind, usize); 17] = [
    (b"cksum", DigestKind::Cksum, 4),
    (b"md5", DigestKind::Md5, 16),
    (b"md5digest", DigestKind::Md5, 16),
    (b"rmd160", DigestKind::Rmd160, 20),
    (b"rmd160digest", DigestKind::Rmd160, 20),
    (b"ripemd160digest", DigestKind::Rmd160, 20),
    (b"sha1", DigestKind::Sha1, 20),
    (b"sha1digest", DigestKind::Sha1, 20),
    (b"sha256", DigestKind::Sha256, 32),
    (b"sha256digest", DigestKind::Sha256, 32),
    (b"sha384", DigestKind::Sha384, 48),
    (b"sha384digest", DigestKind::Sha384, 48),
    (b"sha512", DigestKind::Sha512, 64),
    (b"sha512digest", DigestKind::Sha512, 64),
    // Keywords of Go's mtree.
    (b"ripemd160", DigestKind::Rmd160, 20),
    (b"sha-256", DigestKind::Sha256, 32),
    (b"sha-512", DigestKind::Sha512, 64),
];

impl Digest {
    /// Parses a keyword with a digest; `None` for other keywords.
    pub(super) fn parse(keyword: &[u8], value: &[u8]) -> Result<Option<Self>, RuleFault> {
        let Some((_, kind, len)) = KEYWORDS.iter().find(|(name, ..)| *name == keyword) else {
            return Ok(None);
        };
        if *kind == DigestKind::Cksum {
            let sum: u32 = crate::rule_file::lines::number(value, "cksum", "a decimal number")?;
            return Ok(Some(Self { kind: *kind, expected: sum.to_be_bytes().to_vec() }));
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
        let pairs = value.chunks(2).map(|pair| match pair {
            [high, low] => Some(digit(high)? << 4 | digit(low)?),
            _ => None,
        });
        let expected: Option<Vec<u8>> = pairs.collect();
        let expected = expected.filter(|bytes| bytes.len() == *len);
        let bad = || RuleFault::expected("digest", "the hexadecimal digits of its kind", value);
        Ok(Some(Self { kind: *kind, expected: expected.ok_or_else(bad)? }))
    }

    pub(super) fn is_keyword(keyword: &[u8]) -> bool {
        KEYWORDS.iter().any(|(name, ..)| *name == keyword)
    }

    pub(super) fn has_keyword(&self, keyword: &[u8]) -> bool {
        KEYWORDS.iter().any(|(name, kind, _)| *name == keyword && *kind == self.kind)
    }

    pub(super) fn is_same_kind(&self, other: &Self) -> bool {
        self.kind == other.kind
    }

    /// Returns a hasher for this kind.
    pub(super) fn hasher(&self) -> Hasher {
        match self.kind {
            DigestKind::Cksum => Hasher::Cksum(Cksum::default()),
            DigestKind::Md5 => Hasher::Digest(Box::new(Md5::default())),
            DigestKind::Rmd160 => Hasher::Digest(Box::new(Ripemd160::default())),
            DigestKind::Sha1 => Hasher::Digest(Box::new(Sha1::default())),
            DigestKind::Sha256 => Hasher::Digest(Box::new(Sha256::default())),
            DigestKind::Sha384 => Hasher::Digest(Box::new(Sha384::default())),
            DigestKind::Sha512 => Hasher::Digest(Box::new(Sha512::default())),
        }
    }

    /// Compares the digest with the computed one.
    pub(super) fn compare(&self, path: &[u8], found: &[u8]) -> Result<(), RuleFault> {
        if found == self.expected {
            return Ok(());
        }
        let shown = |sum: &[u8]| match (self.kind, <[u8; 4]>::try_from(sum)) {
            (DigestKind::Cksum, Ok(sum)) => u32::from_be_bytes(sum).to_string(),
            _ => sum.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        let (expected, found) = (shown(&self.expected), shown(found));
        let path = crate::rule_file::fault::shown_path(path);
        Err(RuleFault::Mismatch { path, what: self.kind.name(), expected, found })
    }
}

impl DigestKind {
    fn name(self) -> &'static str {
        match self {
            Self::Cksum => "cksum",
            Self::Md5 => "MD5",
            Self::Rmd160 => "RIPEMD-160",
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        }
    }
}

/// A digest in progress.
pub(super) enum Hasher {
    Cksum(Cksum),
    Digest(Box<dyn DynDigest>),
}

impl Hasher {
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Cksum(sum) => sum.update(bytes),
            Self::Digest(digest) => digest.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        match self {
            Self::Cksum(sum) => sum.finish().to_be_bytes().to_vec(),
            Self::Digest(digest) => digest.finalize().to_vec(),
        }
    }
}

/// The checksum of `cksum`: a CRC over the contents followed by their length.
#[derive(Default)]
pub(super) struct Cksum {
    crc: u32,
    len: u64,
}

/// Its polynomial, from the highest power down (POSIX, `cksum`).
const POLYNOMIAL: u32 = 0x04c1_1db7;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = ((byte as u32) << 24, 0);
        while bit < 8 {
            crc = if crc >> 31 == 1 { crc << 1 ^ POLYNOMIAL } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

impl Cksum {
    fn update(&mut self, bytes: &[u8]) {
        self.len += bytes.len() as u64;
        self.crc = crc(self.crc, bytes);
    }

    fn finish(self) -> u32 {
        let len = self.len.to_le_bytes();
        let used = len.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        !crc(self.crc, &len[..used])
    }
}

fn crc(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |crc, byte| crc << 8 ^ TABLE[usize::from((crc >> 24) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn sums_are_those_that_tools_write() {
        for (keyword, value) in [
            ("cksum", "1479881546"),
            ("md5", "764efa883dda1e11db47671c4a3bbd9e"),
            ("rmd160digest", "1ac2e29fd645edfe32f3442cadf5a46c5a0df960"),
            ("sha1", "55ca6286e3e4f4fba5d0448333fa99fc5a404a73"),
            ("sha256", "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4"),
        ] {
            let digest = Digest::parse(keyword.as_bytes(), value.as_bytes()).unwrap().unwrap();
            let sum = |bytes: &[u8]| {
                let mut hasher = digest.hasher();
                hasher.update(bytes);
                hasher.finish()
            };
            digest.compare(b"f", &sum(b"hi\n")).unwrap();
            let said = digest.compare(b"f", &sum(b"ho\n")).unwrap_err().to_string();
            assert!(said.contains("/f") && said.contains(value), "{said}");
        }
        let empty = Digest::parse(b"cksum", b"4294967295").unwrap().unwrap();
        empty.compare(b"f", &empty.hasher().finish()).unwrap();
    }
}
