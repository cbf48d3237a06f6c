//! Key of an inode: decrypts data units, names and link targets, and encrypts names for lookups.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use zeroize::Zeroizing;

use super::cipher::Cipher;
use crate::format::encryption::{NAME_SIZE_MIN, Nonce, Vector};

/// Maximum length of an encrypted name in bytes.
const NAME_SIZE_MAX: usize = 255;

/// Computation of vectors from the index of a data unit. Names have the index 0.
pub(super) enum Vectors {
    /// The index.
    Index,
    /// The index in 8 bytes, then the nonce of the inode.
    Nonce(Nonce),
    /// The index in 4 bytes, then the inode number.
    Upper(u32),
    /// The sum of the index and the hash of the inode number, in 4 bytes.
    Added(u32),
}

/// Key of an inode.
pub(crate) struct InodeKey {
    pub(super) cipher: Cipher,
    pub(super) vectors: Vectors,
    /// Names are padded to a multiple of this, in bytes.
    pub(super) padding: usize,
    pub(super) unit_log: u32,
    /// Key of the hashes of folded names.
    pub(super) folding: Zeroizing<[u8; 16]>,
}

impl InodeKey {
    /// Returns the binary logarithm of the size of a data unit in bytes.
    pub(crate) fn unit_log(&self) -> u32 {
        self.unit_log
    }

    fn vector(&self, index: u64) -> Vector {
        let mut vector = [0; 32];
        let first = match self.vectors {
            Vectors::Index | Vectors::Nonce(_) => index,
            Vectors::Upper(ino) => index | u64::from(ino) << 32,
            Vectors::Added(hash) => u64::from(hash.wrapping_add(index as u32)),
        };
        vector[..8].copy_from_slice(&first.to_le_bytes());
        if let Vectors::Nonce(nonce) = &self.vectors {
            vector[8..24].copy_from_slice(nonce);
        }
        vector
    }

    /// Decrypts the data unit `index` of a file in place.
    pub(crate) fn decrypt_unit(&self, index: u64, data: &mut [u8]) {
        self.cipher.decrypt(&self.vector(index), data);
    }

    /// Decrypts a stored name or link target. Returns `false` if it is too short to be encrypted.
    pub(crate) fn decrypt_name(&self, stored: &[u8], name: &mut Vec<u8>) -> bool {
        name.clear();
        if stored.len() < NAME_SIZE_MIN {
            return false;
        }
        name.extend_from_slice(stored);
        self.cipher.decrypt(&self.vector(0), name);
        let len = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        name.truncate(len);
        true
    }

    /// Pads and encrypts a name of at most 255 bytes.
    pub(crate) fn encrypt_name(&self, name: &[u8]) -> Vec<u8> {
        let padded = name.len().max(NAME_SIZE_MIN).next_multiple_of(self.padding);
        let mut stored = name.to_vec();
        stored.resize(padded.min(NAME_SIZE_MAX).max(name.len()), 0);
        self.cipher.encrypt(&self.vector(0), &mut stored);
        stored
    }

    /// Returns the hash of a folded name in a directory that is encrypted and case-insensitive.
    pub(crate) fn folded_hash(&self, folded: &[u8]) -> u64 {
        sip_hash(&self.folding, folded)
    }
}

/// SipHash-2-4.
pub(super) fn sip_hash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    hasher.write(bytes);
    hasher.finish()
}
