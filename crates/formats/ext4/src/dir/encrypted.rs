//! Names of encrypted directories: decrypted with the key, or in the form that kernels show without it.
//!
//! The form without the key is URL-safe base64 of the hash of the name (two numbers of 4 bytes) and the stored name. Only
//! the first 149 bytes of a longer name are included, followed by the SHA-256 digest of the rest. Observed on Linux 7.2.

use std::sync::Arc;

use operations::inode::InodeHandle;
use vfs::Result;

use crate::Ext4Core;
use crate::dir::{casefold, index};
use crate::format::encryption::NAME_SIZE_MIN;
use crate::format::hash::{HashParameters, NameHash, NameHasher};
use crate::format::htree::SIPHASH;
use crate::format::inode::flags;
use crate::fscrypt::InodeKey;
use crate::inode::{Handle, encryption};

/// Maximum length of a stored name that is shown whole.
const WHOLE_MAX: usize = 149;
/// Size of the hash before the bytes of the name.
const HASH_SIZE: usize = 8;
/// Size of the digest of the rest of a long name.
const DIGEST_SIZE: usize = digest::SIZE;
const SHOWN_MAX: usize = HASH_SIZE + WHOLE_MAX + DIGEST_SIZE;

/// Digest of the rest of a long name.
#[cfg(feature = "fscrypt")]
mod digest {
    use sha2::{Digest, Sha256};

    pub(super) const SIZE: usize = 32;

    pub(super) fn of(rest: &[u8]) -> [u8; SIZE] {
        Sha256::digest(rest).into()
    }
}

/// Digest of the rest of a long name in a build without SHA-256. Other programs do not know this form.
#[cfg(not(feature = "fscrypt"))]
mod digest {
    pub(super) const SIZE: usize = 4;

    pub(super) fn of(rest: &[u8]) -> [u8; SIZE] {
        crc32c::crc32c(rest).to_le_bytes()
    }
}

/// Names of an encrypted directory for a listing.
pub(crate) struct EncryptedNames {
    key: Option<Arc<InodeKey>>,
    /// Function of the shown hashes. Without one they are zero.
    hasher: Option<NameHasher>,
    /// True if the shown hash is stored after the name.
    pub(super) has_stored_hashes: bool,
}

impl EncryptedNames {
    /// Returns the names of a directory, or `None` if it is not encrypted.
    pub(crate) fn of(mut fs: &Ext4Core, dir: &Handle) -> Result<Option<Self>> {
        if !dir.has_flag(flags::ENCRYPT) {
            return Ok(None);
        }
        dir.require_directory()?;
        let key = encryption::unlocked(fs, dir)?;
        let is_indexed = index::is_indexed(fs, dir);
        let is_one_block = dir.inode.size() >> fs.volume.geometry.block_size_log == 1;
        let is_hashed =
            fs.volume.dir_index && (is_indexed || is_one_block || dir.has_flag(flags::INLINE_DATA));
        let has_stored_hashes = is_hashed && dir.has_flag(flags::CASEFOLD);
        let hasher = if key.is_some() || !is_hashed || has_stored_hashes {
            None
        } else if is_indexed {
            fs.volume.hasher(index::root(&mut fs, dir)?.0.hash_version)
        } else {
            fs.volume.hasher(fs.volume.default_hash_version())
        };
        Ok(Some(Self { key, hasher, has_stored_hashes }))
    }

    /// Returns the names of a directory whose key and hashes are unknown.
    pub(crate) const fn locked() -> Self {
        Self { key: None, hasher: None, has_stored_hashes: false }
    }

    /// Returns the displayed form of a stored name, in `shown`. Returns `None` for a name that no directory can
    /// contain. `.` and `..` are not encrypted.
    pub(crate) fn show<'s>(
        &self,
        stored: &[u8],
        stored_hash: NameHash,
        shown: &'s mut Vec<u8>,
    ) -> Option<&'s [u8]> {
        if matches!(stored, b"." | b"..") {
            shown.clear();
            shown.extend_from_slice(stored);
            return Some(shown);
        }
        let Some(key) = &self.key else {
            let hash = self.hasher.as_ref().map_or(stored_hash, |hasher| hasher.hash(stored));
            show_locked(stored, hash, shown);
            return Some(shown);
        };
        let is_possible = key.decrypt_name(stored, shown)
            && !matches!(&shown[..], b"" | b"." | b"..")
            && !shown.contains(&b'/');
        is_possible.then_some(&shown[..])
    }
}

/// Writes the form without the key.
fn show_locked(stored: &[u8], hash: NameHash, shown: &mut Vec<u8>) {
    let mut bytes = [0; SHOWN_MAX];
    bytes[..4].copy_from_slice(&hash.major.to_le_bytes());
    bytes[4..HASH_SIZE].copy_from_slice(&hash.minor.to_le_bytes());
    let (start, rest) = stored.split_at(stored.len().min(WHOLE_MAX));
    let mut len = HASH_SIZE + start.len();
    bytes[HASH_SIZE..len].copy_from_slice(start);
    if !rest.is_empty() {
        bytes[len..].copy_from_slice(&digest::of(rest));
        len = SHOWN_MAX;
    }
    shown.clear();
    base64(&bytes[..len], shown);
}

/// A name to search for in an encrypted directory.
pub(super) enum WantedName {
    /// The stored name. Contains also its hash if the name was given in the form without the key.
    Stored(Vec<u8>, Option<u32>),
    /// Start and digest of a long stored name, with its hash.
    Start { hash: u32, start: Vec<u8>, digest: [u8; DIGEST_SIZE] },
    /// The folded name of a case-insensitive directory, with its hash.
    Folded { key: Arc<InodeKey>, folded: Vec<u8>, hash: u32 },
    /// No stored name has this displayed form.
    Nothing,
}

impl WantedName {
    /// Returns the name to search for in a directory.
    pub(super) fn in_directory(fs: &Ext4Core, dir: &Handle, name: &[u8]) -> Result<Self> {
        let Some(key) = encryption::unlocked(fs, dir)? else { return Ok(Self::locked(name)) };
        if !dir.has_flag(flags::CASEFOLD) {
            return Ok(Self::Stored(key.encrypt_name(name), None));
        }
        let mut folded = Vec::new();
        casefold::fold(name, &mut folded);
        let hash = NameHash::of_combined(key.folded_hash(&folded)).major;
        Ok(Self::Folded { key, folded, hash })
    }

    /// Returns the name for a displayed form without the key.
    pub(super) fn locked(shown: &[u8]) -> Self {
        let Some(bytes) = from_base64(shown) else { return Self::Nothing };
        let Some((hash, name)) = bytes.split_first_chunk::<HASH_SIZE>() else {
            return Self::Nothing;
        };
        let hash = u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]);
        match name.split_at_checked(WHOLE_MAX) {
            Some((_, [])) | None => Self::Stored(name.to_vec(), Some(hash)),
            Some((start, digest)) => match digest.try_into() {
                Ok(digest) => Self::Start { hash, start: start.to_vec(), digest },
                Err(_) => Self::Nothing,
            },
        }
    }

    /// Returns the major hash for an index of this version. Returns `None` if the name does not determine it.
    pub(super) fn major(&self, parameters: &HashParameters, version: u8) -> Option<u32> {
        match self {
            Self::Stored(_, hash) if version == SIPHASH => hash.filter(|hash| *hash != 0),
            Self::Stored(stored, _) => Some(parameters.hasher(version)?.hash(stored).major),
            // Directories without an index show no hash.
            Self::Start { hash, .. } => Some(*hash).filter(|hash| *hash != 0),
            Self::Folded { hash, .. } => Some(*hash).filter(|_| version == SIPHASH),
            Self::Nothing => Some(0),
        }
    }

    /// Returns whether it is the name of a stored one. `scratch` receives other forms of it.
    pub(super) fn is(&self, stored: &[u8], scratch: &mut (Vec<u8>, Vec<u8>)) -> bool {
        match self {
            Self::Stored(wanted, _) => wanted == stored,
            Self::Start { start, digest, .. } => stored
                .split_at_checked(WHOLE_MAX)
                .is_some_and(|(first, rest)| first == start && digest::of(rest) == *digest),
            Self::Folded { key, folded, .. } => {
                let (name, other) = scratch;
                if stored.len() < NAME_SIZE_MIN || !key.decrypt_name(stored, name) {
                    return false;
                }
                casefold::fold(name, other);
                other == folded
            }
            Self::Nothing => false,
        }
    }
}

/// Appends URL-safe base64 without padding (RFC 4648, section 5).
fn base64(bytes: &[u8], text: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digits = (0..=chunk.len()).map(|n| DIGITS[(word >> (18 - 6 * n)) as usize & 63]);
        text.extend(digits);
    }
}

/// Decodes URL-safe base64. Returns `None` for text that [`base64`] does not write.
fn from_base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.chunks(4) {
        let mut word = 0_u32;
        for &digit in chunk {
            word = word << 6 | u32::from(base64_value(digit)?);
        }
        let decoded = (word << (6 * (4 - chunk.len()))).to_be_bytes();
        bytes.extend_from_slice(&decoded[1..chunk.len()]);
    }
    let mut again = Vec::with_capacity(text.len());
    base64(&bytes, &mut again);
    (again == text).then_some(bytes)
}

/// Returns the value of a digit of URL-safe base64.
fn base64_value(digit: u8) -> Option<u8> {
    match digit {
        b'A'..=b'Z' => Some(digit - b'A'),
        b'a'..=b'z' => Some(digit - b'a' + 26),
        b'0'..=b'9' => Some(digit - b'0' + 52),
        b'-' => Some(62),
        b'_' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, expected) in [("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg")] {
            let mut text = Vec::new();
            base64(bytes.as_bytes(), &mut text);
            assert_eq!(text, expected.as_bytes());
            assert_eq!(from_base64(&text).unwrap(), bytes.as_bytes());
        }
        for text in ["Zh", "Zg=", "Z", "Zm9v/", "Zm9vYh"] {
            assert_eq!(from_base64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn locked_names_differ_fit_and_are_found() {
        let names = EncryptedNames::locked();
        let hash = NameHash { major: 0x1234_5678, minor: 0x9abc_def0 };
        let mut all = std::collections::BTreeSet::new();
        for len in [16, 149, 150, 183, 255] {
            for last in [0, b'/', 0xff] {
                let mut stored = vec![b'/'; len];
                stored[len - 1] = last;
                let mut shown = Vec::new();
                let shown = names.show(&stored, hash, &mut shown).unwrap();
                assert!(shown.len() <= 255 && !shown.contains(&b'/'));
                let wanted = WantedName::locked(shown);
                let mut scratch = Default::default();
                assert!(wanted.is(&stored, &mut scratch));
                stored[len - 1] ^= 1;
                assert!(!wanted.is(&stored, &mut scratch));
                all.insert(shown.to_vec());
            }
        }
        assert_eq!(all.len(), 15);
        for name in [&b"plain"[..], b"", b"AAAA", b"a name"] {
            let wanted = WantedName::locked(name);
            assert!(!wanted.is(b"plain", &mut Default::default()));
        }
    }
}
