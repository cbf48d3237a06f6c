//! Derivation of an inode's key and vectors from a given key.

use aes::Aes128Enc;
use aes::cipher::{BlockEncrypt, KeyInit};
use vfs::{Error, KeyName, Result};
use zeroize::Zeroizing;

use super::cipher::Cipher;
use super::inode_key::{InodeKey, Vectors, sip_hash};
use super::keyring::{MasterKey, Purpose};
use super::usage::KeyUsage;
use crate::format::encryption::{CipherMode, EncryptionContext, KeyScheme, Nonce};

/// Derives the key of an inode.
pub(super) fn key(
    master: &MasterKey,
    context: &EncryptionContext,
    usage: &KeyUsage,
) -> Result<InodeKey> {
    let mode = if usage.is_contents { context.contents } else { context.names };
    let mut bytes = Zeroizing::new([0; 64]);
    let bytes = &mut bytes[..mode.key_size()];
    match context.key {
        KeyName::Descriptor(_) => first_version(master, mode, context, bytes)?,
        KeyName::Identifier(_) => second_version(master, mode, context, usage, bytes),
    }
    let ino = usage.ino as u32;
    let vectors = match context.scheme {
        KeyScheme::PerFile => Vectors::Index,
        KeyScheme::Direct => Vectors::Nonce(context.nonce),
        KeyScheme::Ino64 => Vectors::Upper(ino),
        KeyScheme::Ino32 => {
            let mut hash_key = Zeroizing::new([0; 16]);
            master.derive(Purpose::InodeHash, &[], &mut *hash_key);
            Vectors::Added(sip_hash(&hash_key, &usage.ino.to_le_bytes()) as u32)
        }
    };
    let mut folding = Zeroizing::new([0; 16]);
    if !usage.is_contents && matches!(context.key, KeyName::Identifier(_)) {
        master.derive(Purpose::DirectoryHash, &[&context.nonce], &mut *folding);
    }
    Ok(InodeKey {
        cipher: Cipher::new(mode, bytes),
        vectors,
        padding: context.padding,
        unit_log: context.unit_log.unwrap_or(usage.block_log),
        folding,
    })
}

/// Version 1: the given key, encrypted with the nonce as key (AES-128-ECB), or the given key itself.
fn first_version(
    master: &MasterKey,
    mode: CipherMode,
    context: &EncryptionContext,
    to: &mut [u8],
) -> Result<()> {
    let raw = master
        .raw()
        .get(..mode.key_size())
        .ok_or(Error::Invalid("the key of the encrypted file is shorter than its cipher needs"))?;
    to.copy_from_slice(raw);
    if context.scheme != KeyScheme::Direct {
        encrypt_with(&context.nonce, to);
    }
    Ok(())
}

/// Encrypts whole blocks with AES-128-ECB.
fn encrypt_with(nonce: &Nonce, bytes: &mut [u8]) {
    let cipher = Aes128Enc::new(nonce.into());
    for block in bytes.as_chunks_mut::<16>().0 {
        cipher.encrypt_block(block.into());
    }
}

/// Version 2: HKDF with the nonce, with the mode, or with the mode and the UUID.
fn second_version(
    master: &MasterKey,
    mode: CipherMode,
    context: &EncryptionContext,
    usage: &KeyUsage,
    to: &mut [u8],
) {
    let number = [mode.number()];
    match context.scheme {
        KeyScheme::PerFile => master.derive(Purpose::PerFile, &[&context.nonce], to),
        KeyScheme::Direct => master.derive(Purpose::Direct, &[&number], to),
        KeyScheme::Ino64 => master.derive(Purpose::Ino64, &[&number, &usage.uuid], to),
        KeyScheme::Ino32 => master.derive(Purpose::Ino32, &[&number, &usage.uuid], to),
    }
}
