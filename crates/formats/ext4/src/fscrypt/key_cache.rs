//! Keys of inodes: derived from the given keys, and kept.

use std::collections::HashMap;
use std::sync::Arc;

use engine::locks::Mutex;
use vfs::{KeyName, Result};

use super::derive;
use super::inode_key::InodeKey;
use super::keyring::EncryptionKeys;
use super::usage::KeyUsage;
use crate::format::encryption::{self, EncryptionContext, Nonce};

/// Maximum number of derived keys in memory.
const KEPT_MAX: usize = 256;
/// Binary logarithm of the maximum block size, for contexts of names.
const BLOCK_LOG_MAX: u32 = 16;

/// Given keys, and the keys of inodes derived last.
pub(crate) struct KeyCache {
    keys: EncryptionKeys,
    /// Derived keys. The nonce of an inode is random, so that a new inode with an old number has another key.
    derived: Mutex<HashMap<(u64, Nonce), Arc<InodeKey>>>,
}

impl KeyCache {
    pub(crate) fn new(keys: EncryptionKeys) -> Self {
        Self { keys, derived: Mutex::default() }
    }

    /// Returns whether no keys were given.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the names of the given keys, of the same kind as `needed`.
    pub(crate) fn names(&self, needed: KeyName) -> Vec<KeyName> {
        self.keys.names(needed)
    }

    /// Returns the key of an inode with this context. Returns `None` if its key was not given.
    pub(crate) fn key(
        &self,
        context: &EncryptionContext,
        usage: &KeyUsage,
    ) -> Result<Option<Arc<InodeKey>>> {
        let Some(master) = self.keys.find(context.key) else { return Ok(None) };
        let id = (usage.ino, context.nonce);
        if let Some(key) = self.derived.lock().get(&id) {
            return Ok(Some(key.clone()));
        }
        let key = Arc::new(derive::key(master, context, usage)?);
        let mut derived = self.derived.lock();
        if derived.len() >= KEPT_MAX {
            derived.clear();
        }
        derived.insert(id, key.clone());
        Ok(Some(key))
    }
}

/// Decrypts a stored name with the encryption context of its directory, for tools that have no file system. Returns
/// `None` if the key is not among `keys`, or if the name is too short to be encrypted. The name may contain any bytes
/// except NUL.
///
/// `ino` is the inode number of the directory, and `uuid` that of its file system.
///
/// # Errors
/// `Corrupt`, `Unsupported`, and `Invalid` for a key that is too short.
pub fn decrypted_name(
    keys: &EncryptionKeys,
    context: &[u8],
    (uuid, ino): ([u8; 16], u64),
    stored: &[u8],
) -> Result<Option<Vec<u8>>> {
    let context = encryption::parse(context, BLOCK_LOG_MAX).map_err(|fault| fault.of_inode(ino))?;
    let Some(master) = keys.find(context.key) else { return Ok(None) };
    let usage = KeyUsage { is_contents: false, ino, uuid, block_log: BLOCK_LOG_MAX };
    let mut name = Vec::new();
    let is_name = derive::key(master, &context, &usage)?.decrypt_name(stored, &mut name);
    Ok(is_name.then_some(name))
}
