//! Keys of a build without the feature `fscrypt`: there are none.

use std::sync::Arc;

use vfs::{KeyName, Result};

use super::usage::KeyUsage;
use crate::format::encryption::EncryptionContext;

/// Key of an inode, which cannot exist.
pub(crate) enum InodeKey {}

impl InodeKey {
    pub(crate) fn unit_log(&self) -> u32 {
        match *self {}
    }

    pub(crate) fn decrypt_unit(&self, _index: u64, _data: &mut [u8]) {
        match *self {}
    }

    pub(crate) fn decrypt_name(&self, _stored: &[u8], _name: &mut Vec<u8>) -> bool {
        match *self {}
    }

    pub(crate) fn encrypt_name(&self, _name: &[u8]) -> Vec<u8> {
        match *self {}
    }

    pub(crate) fn folded_hash(&self, _folded: &[u8]) -> u64 {
        match *self {}
    }
}

/// Given keys: always none.
#[derive(Default)]
pub(crate) struct KeyCache {}

impl KeyCache {
    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn names(&self, _needed: KeyName) -> Vec<KeyName> {
        Vec::new()
    }

    pub(crate) fn key(
        &self,
        _context: &EncryptionContext,
        _usage: &KeyUsage,
    ) -> Result<Option<Arc<InodeKey>>> {
        Ok(None)
    }
}
