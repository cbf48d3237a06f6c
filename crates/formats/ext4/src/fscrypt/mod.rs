//! Encrypted directories and files (fscrypt), read with keys.
//!
//! Source: kernel Documentation/filesystems/fscrypt.rst. The policy of an inode names a key, the ciphers and the
//! derivation of keys; its nonce makes its key or its vectors unique. Regular files use the mode of contents for each
//! data unit. Directories and symbolic links use the mode of names.
//!
//! Only names for lookups are encrypted here. Images with encrypted files are therefore changed only by
//! removals.

#[cfg(not(feature = "fscrypt"))]
mod absent;
#[cfg(feature = "fscrypt")]
mod adiantum;
#[cfg(feature = "fscrypt")]
mod aes_modes;
#[cfg(feature = "fscrypt")]
mod cipher;
#[cfg(feature = "fscrypt")]
mod derive;
#[cfg(feature = "fscrypt")]
mod hctr2;
#[cfg(feature = "fscrypt")]
mod inode_key;
#[cfg(feature = "fscrypt")]
mod key_cache;
#[cfg(feature = "fscrypt")]
mod keyring;
mod usage;

#[cfg(not(feature = "fscrypt"))]
pub(crate) use absent::{InodeKey, KeyCache};
#[cfg(feature = "fscrypt")]
pub(crate) use inode_key::InodeKey;
#[cfg(feature = "fscrypt")]
pub(crate) use key_cache::KeyCache;
#[cfg(feature = "fscrypt")]
pub use key_cache::decrypted_name;
#[cfg(feature = "fscrypt")]
pub use keyring::{EncryptionKeys, KEY_SIZE_MAX, KEY_SIZE_MIN};
pub(crate) use usage::KeyUsage;
