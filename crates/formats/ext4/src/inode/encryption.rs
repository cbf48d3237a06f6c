//! Encryption of an inode: its context and its key.

use std::sync::Arc;

use vfs::{EncryptionFault, Error, FileType, Ino, Result};

use crate::Ext4Core;
use crate::format::encryption::{self, EncryptionContext};
use crate::format::inode::flags;
use crate::format::xattr::AttributeName;
use crate::fscrypt::{InodeKey, KeyUsage};
use crate::inode::Handle;
use crate::xattr;

/// Returns the key of an encrypted inode whose key was given. Returns `None` if it was not given, or if the context of
/// the inode is invalid.
pub(crate) fn unlocked(fs: &Ext4Core, inode: &Handle) -> Result<Option<Arc<InodeKey>>> {
    if fs.key_cache.is_empty() {
        return Ok(None);
    }
    match required(fs, inode) {
        Ok(key) => Ok(Some(key)),
        Err(Error::Encrypted(_) | Error::Unsupported(_) | Error::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the key of an encrypted inode.
///
/// # Errors
/// `Encrypted` if the key was not given, `Unsupported`, `Corrupt`.
pub(crate) fn required(fs: &Ext4Core, inode: &Handle) -> Result<Arc<InodeKey>> {
    let context = context(fs, inode)?;
    let usage = KeyUsage {
        is_contents: inode.file_type()? == FileType::Regular,
        ino: inode.ino().0,
        uuid: fs.volume.sb.raw.uuid,
        block_log: fs.volume.geometry.block_size_log,
    };
    fs.key_cache.key(&context, &usage)?.ok_or_else(|| {
        let given = fs.key_cache.names(context.key);
        Error::Encrypted(Box::new(EncryptionFault::MissingKey { needed: context.key, given }))
    })
}

/// Returns the error for names of an encrypted directory whose key was not given. Returns `None` if the directory is
/// not encrypted or its names are available.
pub(crate) fn missing_key(fs: &Ext4Core, dir: &Handle) -> Option<Error> {
    if !dir.has_flag(flags::ENCRYPT) {
        return None;
    }
    required(fs, dir).err()
}

/// Reads the encryption context of an inode.
fn context(fs: &Ext4Core, inode: &Handle) -> Result<EncryptionContext> {
    let (index, suffix) = encryption::NAME;
    let value = xattr::get_stored(fs, inode, AttributeName { index, suffix })?;
    let value = value.ok_or_else(|| Error::Encrypted(Box::new(EncryptionFault::NoContext)))?;
    encryption::parse(&value, fs.volume.geometry.block_size_log)
        .map_err(|fault| fault.of_inode(inode.ino().0))
}

impl Ext4Core {
    /// Returns the encryption policy of an inode as text: modes, padding, derivation of keys, and the name of the key.
    /// Returns `None` if the inode is not encrypted.
    ///
    /// # Errors
    /// `NotFound`, `Corrupt`, `Unsupported`.
    pub fn encryption_policy(&self, ino: Ino) -> Result<Option<String>> {
        let inode = self.load(ino)?;
        if !inode.has_flag(flags::ENCRYPT) {
            return Ok(None);
        }
        context(self, &inode).map(|context| Some(context.to_string()))
    }
}
