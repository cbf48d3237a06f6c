//! Given keys and their names.

use std::fmt;
use std::sync::Arc;

use hkdf::Hkdf;
use sha2::{Digest, Sha512};
use vfs::{Error, KeyName, Result};
use zeroize::Zeroizing;

/// Minimum size of a key in bytes.
pub const KEY_SIZE_MIN: usize = 16;
/// Maximum size of a key in bytes.
pub const KEY_SIZE_MAX: usize = 64;

/// Prefix of the information of each derivation.
const PREFIX: &[u8; 8] = b"fscrypt\0";

/// Purpose of a derived key: the first byte of the information after the prefix.
#[derive(Clone, Copy)]
pub(super) enum Purpose {
    Identifier = 1,
    PerFile = 2,
    Direct = 3,
    Ino64 = 4,
    DirectoryHash = 5,
    Ino32 = 6,
    InodeHash = 7,
}

/// A key as the user has it. It is erased when it is dropped.
pub(super) struct MasterKey {
    raw: Zeroizing<Vec<u8>>,
    descriptor: [u8; 8],
    identifier: [u8; 16],
}

impl MasterKey {
    fn new(raw: Zeroizing<Vec<u8>>) -> Self {
        let digest = Sha512::digest(Sha512::digest(&*raw));
        let mut descriptor = [0; 8];
        descriptor.copy_from_slice(&digest[..8]);
        let mut key = Self { raw, descriptor, identifier: [0; 16] };
        let mut identifier = [0; 16];
        key.derive(Purpose::Identifier, &[], &mut identifier);
        key.identifier = identifier;
        key
    }

    pub(super) fn raw(&self) -> &[u8] {
        &self.raw
    }

    fn has_name(&self, name: KeyName) -> bool {
        match name {
            KeyName::Descriptor(descriptor) => descriptor == self.descriptor,
            KeyName::Identifier(identifier) => identifier == self.identifier,
        }
    }

    /// Derives a key with HKDF-SHA512. `to` has at most 64 bytes.
    pub(super) fn derive(&self, purpose: Purpose, info: &[&[u8]], to: &mut [u8]) {
        let mut parts: [&[u8]; 4] = [PREFIX, &[purpose as u8], &[], &[]];
        for (part, info) in parts[2..].iter_mut().zip(info) {
            *part = info;
        }
        // Fails only for more than 255 blocks.
        let expanded = Hkdf::<Sha512>::new(None, &self.raw).expand_multi_info(&parts, to);
        debug_assert!(expanded.is_ok());
    }
}

/// Keys for encrypted files and directories.
///
/// Clones share the keys, which are erased from memory with the last clone. They are never formatted.
#[derive(Clone, Default)]
pub struct EncryptionKeys(Option<Arc<[Arc<MasterKey>]>>);

impl EncryptionKeys {
    /// Returns no keys.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    fn all(&self) -> &[Arc<MasterKey>] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Adds a raw key and returns its names, in policies of version 1 and of version 2. The vector is erased.
    ///
    /// # Errors
    /// `Invalid` unless it has 16 to 64 bytes.
    pub fn add(&mut self, raw: Vec<u8>) -> Result<[KeyName; 2]> {
        let raw = Zeroizing::new(raw);
        if !(KEY_SIZE_MIN..=KEY_SIZE_MAX).contains(&raw.len()) {
            return Err(Error::Invalid("a key of encrypted files has 16 to 64 bytes"));
        }
        let key = Arc::new(MasterKey::new(raw));
        let names = [KeyName::Descriptor(key.descriptor), KeyName::Identifier(key.identifier)];
        self.0 = Some(self.all().iter().cloned().chain([key]).collect());
        Ok(names)
    }

    /// Adds all keys of `more`.
    pub fn extend(&mut self, more: &Self) {
        self.0 = Some(self.all().iter().chain(more.all()).cloned().collect());
    }

    /// Returns whether no key was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    pub(super) fn find(&self, name: KeyName) -> Option<&Arc<MasterKey>> {
        self.all().iter().find(|key| key.has_name(name))
    }

    /// Returns the names of all keys, of the same kind as `like`.
    pub(super) fn names(&self, like: KeyName) -> Vec<KeyName> {
        let name = |key: &Arc<MasterKey>| match like {
            KeyName::Descriptor(_) => KeyName::Descriptor(key.descriptor),
            KeyName::Identifier(_) => KeyName::Identifier(key.identifier),
        };
        self.all().iter().map(name).collect()
    }
}

/// Compares which keys they share, not the bytes of the keys.
impl PartialEq for EncryptionKeys {
    fn eq(&self, other: &Self) -> bool {
        let (own, others) = (self.all(), other.all());
        own.len() == others.len() && own.iter().zip(others).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

impl Eq for EncryptionKeys {}

impl fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptionKeys").field("count", &self.all().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are those that Linux 7.2 computed.
    #[test]
    fn keys_have_the_names_that_kernels_compute() {
        let mut keys = EncryptionKeys::new();
        let raw = *b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
        let [descriptor, identifier] = keys.add(raw.to_vec()).unwrap();
        assert_eq!(descriptor.to_string(), "descriptor b009bdfb7e2c7fef");
        assert_eq!(identifier.to_string(), "identifier 3f872b09427a09ff6d1b63a7f332d084");
        assert!(keys.find(descriptor).is_some() && keys.find(identifier).is_some());
        for size in [15, 65] {
            assert!(matches!(keys.add(vec![0; size]), Err(Error::Invalid(_))));
        }
        assert_eq!(format!("{keys:?}"), "EncryptionKeys { count: 1, .. }");
    }
}
