//! Encryption contexts: the attribute `c` of index 9, which describes how an inode is encrypted.
//!
//! Source: kernel Documentation/filesystems/fscrypt.rst. Version 1 has 28 bytes: version, two modes, flags, an 8-byte
//! key descriptor. Version 2 has 40 bytes: version, two modes, flags, 4 more bytes, a 16-byte key identifier. Both end
//! with a nonce of 16 bytes. The bytes before the nonce are the policy, which files inherit from their directory.

use std::fmt::{self, Display, Formatter};

use vfs::{Corruption, Error, KeyName};

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

/// Size of the nonce of an inode, and of the ciphers' blocks, in bytes.
pub(crate) type Nonce = [u8; NONCE_SIZE];

/// Initialisation vector of a data unit or a name. Ciphers with shorter ones use its start.
#[cfg(feature = "fscrypt")]
pub(crate) type Vector = [u8; 32];

/// Minimum length of an encrypted name in bytes.
pub(crate) const NAME_SIZE_MIN: usize = 16;

/// Cipher and mode of contents or names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CipherMode {
    /// AES-256-XTS.
    Aes256Xts,
    /// AES-256-CBC-CTS.
    Aes256Cts,
    /// AES-128-CBC-ESSIV.
    Aes128Cbc,
    /// AES-128-CBC-CTS.
    Aes128Cts,
    /// Adiantum: XChaCha12, AES-256, NH and Poly1305.
    Adiantum,
    /// AES-256-HCTR2.
    Aes256Hctr2,
}

impl CipherMode {
    /// Returns its number in policies.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Aes256Xts => 1,
            Self::Aes256Cts => 4,
            Self::Aes128Cbc => 5,
            Self::Aes128Cts => 6,
            Self::Adiantum => 9,
            Self::Aes256Hctr2 => 10,
        }
    }

    /// Returns its name in the kernel's documentation.
    const fn name(self) -> &'static str {
        match self {
            Self::Aes256Xts => "AES-256-XTS",
            Self::Aes256Cts => "AES-256-CBC-CTS",
            Self::Aes128Cbc => "AES-128-CBC-ESSIV",
            Self::Aes128Cts => "AES-128-CBC-CTS",
            Self::Adiantum => "Adiantum",
            Self::Aes256Hctr2 => "AES-256-HCTR2",
        }
    }

    /// Returns the size of its key in bytes.
    #[cfg(feature = "fscrypt")]
    pub(crate) const fn key_size(self) -> usize {
        match self {
            Self::Aes256Xts => 64,
            Self::Aes256Cts | Self::Adiantum | Self::Aes256Hctr2 => 32,
            Self::Aes128Cbc | Self::Aes128Cts => 16,
        }
    }
}

/// Pairs of modes for contents and names that kernels accept, by their numbers.
const MODES: [(CipherMode, CipherMode); 4] = [
    (CipherMode::Aes256Xts, CipherMode::Aes256Cts),
    (CipherMode::Aes128Cbc, CipherMode::Aes128Cts),
    (CipherMode::Adiantum, CipherMode::Adiantum),
    (CipherMode::Aes256Xts, CipherMode::Aes256Hctr2),
];

/// Derivation of the keys of inodes and their initialisation vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyScheme {
    /// Each inode has a key, derived with its nonce.
    PerFile,
    /// Inodes of one mode share a key. The vector contains the nonce.
    Direct,
    /// Inodes of one mode share a key. The vector contains the inode number in its upper 32 bits.
    Ino64,
    /// Inodes of one mode share a key. The hash of the inode number is added to the index, in 32 bits.
    Ino32,
}

/// A valid encryption context of a supported policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EncryptionContext {
    /// Key of the policy.
    pub key: KeyName,
    /// Mode of contents.
    pub contents: CipherMode,
    /// Mode of names and targets of symbolic links.
    pub names: CipherMode,
    /// Names are padded to a multiple of this, in bytes.
    pub padding: usize,
    /// Derivation of keys.
    pub scheme: KeyScheme,
    /// Binary logarithm of the size of a data unit in bytes, or `None` for that of a block.
    pub unit_log: Option<u32>,
    /// Nonce of the inode.
    pub nonce: Nonce,
}

/// Reason why a context cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextFault {
    /// It has an invalid size or invalid fields.
    Damaged(&'static str),
    /// Unsupported cipher or version.
    Unsupported(&'static str),
}

impl ContextFault {
    /// Returns the error for the context of an inode.
    pub(crate) fn of_inode(self, ino: u64) -> Error {
        match self {
            Self::Damaged(problem) => {
                Corruption::new("encryption context", problem).of_inode(ino).into()
            }
            Self::Unsupported(what) => {
                Error::unsupported(what, "mount the image with a kernel that supports it")
            }
        }
    }
}

const FLAGS_PADDING: u8 = 3;
const FLAG_DIRECT_KEY: u8 = 4;
const FLAG_INO_64: u8 = 8;
const FLAG_INO_32: u8 = 16;

/// Parses a context in full. `block_log` is the binary logarithm of the block size.
///
/// The bytes of version 2 with AES-256-XTS and AES-256-CTS, padding to 32 bytes and an identifier that starts with
/// `42b7`:
///
/// ```text
/// 02 01 04 03 00 00 00 00 42 b7 .. (14 bytes) .. nonce (16 bytes)
/// ```
pub(crate) fn parse(value: &[u8], block_log: u32) -> Result<EncryptionContext, ContextFault> {
    use ContextFault::{Damaged, Unsupported};
    match read(value) {
        Context::Known(_) => {}
        Context::Unknown => return Err(Unsupported("encryption policies of an unknown version")),
        Context::Damaged => return Err(Damaged("invalid size or version")),
    }
    let (policy, nonce) = value.split_at(value.len() - NONCE_SIZE);
    let nonce = nonce.try_into().map_err(|_| Damaged("invalid size or version"))?;
    let is_first = policy[0] == 1;
    let key = if is_first {
        policy[4..].try_into().map(KeyName::Descriptor)
    } else {
        policy[8..].try_into().map(KeyName::Identifier)
    };
    let key = key.map_err(|_| Damaged("invalid size or version"))?;
    let (contents, names) = modes(policy[1], policy[2])?;
    if is_first && names == CipherMode::Aes256Hctr2 {
        return Err(Damaged("a mode that needs version 2"));
    }
    let scheme = match policy[3] & !FLAGS_PADDING {
        0 => KeyScheme::PerFile,
        FLAG_DIRECT_KEY => KeyScheme::Direct,
        FLAG_INO_64 if !is_first => KeyScheme::Ino64,
        FLAG_INO_32 if !is_first => KeyScheme::Ino32,
        _ => return Err(Damaged("invalid flags")),
    };
    // The nonce in the vector needs a vector of 24 bytes.
    if scheme == KeyScheme::Direct && (contents, names) != MODES[2] {
        return Err(Damaged("invalid flags for its modes"));
    }
    let unit_log = if is_first { 0 } else { u32::from(policy[4]) };
    if unit_log != 0 && !(UNIT_LOG_MIN..=block_log).contains(&unit_log) {
        return Err(Damaged("invalid size of data units"));
    }
    if !is_first && policy[5..8] != [0; 3] {
        return Err(Damaged("reserved bytes that are not zero"));
    }
    let padding = 4 << (policy[3] & FLAGS_PADDING);
    let unit_log = (unit_log != 0).then_some(unit_log);
    Ok(EncryptionContext { key, contents, names, padding, scheme, unit_log, nonce })
}

impl Display for EncryptionContext {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (contents, names) = (self.contents.name(), self.names.name());
        write!(f, "contents {contents}, names {names}, padding {}, ", self.padding)?;
        f.write_str(match self.scheme {
            KeyScheme::PerFile => "",
            KeyScheme::Direct => "DIRECT_KEY, ",
            KeyScheme::Ino64 => "IV_INO_LBLK_64, ",
            KeyScheme::Ino32 => "IV_INO_LBLK_32, ",
        })?;
        if let Some(log) = self.unit_log {
            write!(f, "data units of {} bytes, ", 1_u64 << log)?;
        }
        write!(f, "key {}", self.key)
    }
}

/// Minimum binary logarithm of the size of a data unit.
const UNIT_LOG_MIN: u32 = 9;

/// Returns the modes for two numbers.
fn modes(contents: u8, names: u8) -> Result<(CipherMode, CipherMode), ContextFault> {
    if matches!((contents, names), (7, 8)) {
        return Err(ContextFault::Unsupported("encryption with SM4"));
    }
    let is_pair =
        |pair: &&(CipherMode, CipherMode)| (pair.0.number(), pair.1.number()) == (contents, names);
    let pair = MODES.iter().find(is_pair).copied();
    pair.ok_or(ContextFault::Unsupported("encryption with an unknown cipher"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context of version 2.
    fn context() -> [u8; 40] {
        let mut bytes = [0x42; 40];
        bytes[..8].copy_from_slice(&[2, 1, 4, 3, 0, 0, 0, 0]);
        bytes
    }

    #[test]
    fn contexts_are_parsed_in_full() {
        let parsed = parse(&context(), 12).unwrap();
        assert_eq!(parsed.key, KeyName::Identifier([0x42; 16]));
        assert_eq!((parsed.padding, parsed.scheme), (32, KeyScheme::PerFile));
        assert_eq!((parsed.unit_log, parsed.nonce), (None, [0x42; 16]));
        assert_eq!(
            parsed.to_string(),
            "contents AES-256-XTS, names AES-256-CBC-CTS, padding 32, key identifier \
             42424242424242424242424242424242"
        );
        let mut old = [9; 28];
        old[..4].copy_from_slice(&[1, 9, 9, 5]);
        let parsed = parse(&old, 12).unwrap();
        assert_eq!(parsed.key, KeyName::Descriptor([9; 8]));
        assert_eq!((parsed.padding, parsed.scheme), (8, KeyScheme::Direct));
    }

    #[test]
    fn invalid_policies_are_refused() {
        // Position and value of a changed byte.
        for (at, value, is_damage) in [
            (1, 7, false),
            (2, 9, false),
            (0, 3, false),
            (3, 0x24, true),
            (3, 0x18, true),
            (3, 4, true),
            (4, 8, true),
            (4, 13, true),
            (6, 1, true),
            (0, 1, true),
        ] {
            let mut bytes = context();
            bytes[at] = value;
            let found = parse(&bytes, 12).unwrap_err();
            assert_eq!(matches!(found, ContextFault::Damaged(_)), is_damage, "{at}: {value}");
        }
        let mut bytes = context();
        bytes[4] = 9;
        assert_eq!(parse(&bytes, 12).unwrap().unit_log, Some(9));
    }

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
