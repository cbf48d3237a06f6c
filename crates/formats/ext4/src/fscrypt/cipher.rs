//! The ciphers of policies.

use aes::cipher::{BlockEncrypt, KeyInit};
use aes::{Aes128, Aes256, Aes256Enc};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::adiantum::Adiantum;
use super::aes_modes::{Xts, decrypt_cbc, decrypt_cts, encrypt_cts};
use super::hctr2::Hctr2;
use crate::format::encryption::{CipherMode, Vector};

/// A cipher with its key. The keys are erased when they are dropped.
pub(super) enum Cipher {
    Xts(Box<Xts>),
    Cts256(Box<Aes256>),
    Cbc128 { data: Box<Aes128>, vectors: Box<Aes256Enc> },
    Cts128(Box<Aes128>),
    Adiantum(Box<Adiantum>),
    Hctr2(Box<Hctr2>),
}

impl Cipher {
    /// Takes a key of the size of the mode.
    pub(super) fn new(mode: CipherMode, key: &[u8]) -> Self {
        match mode {
            CipherMode::Aes256Xts => Self::Xts(Box::new(Xts::new(key))),
            CipherMode::Aes256Cts => Self::Cts256(Box::new(Aes256::new(key.into()))),
            CipherMode::Aes128Cbc => {
                let digest = Zeroizing::new(<[u8; 32]>::from(Sha256::digest(key)));
                let vectors = Box::new(Aes256Enc::new((&*digest).into()));
                Self::Cbc128 { data: Box::new(Aes128::new(key.into())), vectors }
            }
            CipherMode::Aes128Cts => Self::Cts128(Box::new(Aes128::new(key.into()))),
            CipherMode::Adiantum => Self::Adiantum(Box::new(Adiantum::new(key))),
            CipherMode::Aes256Hctr2 => Self::Hctr2(Box::new(Hctr2::new(key))),
        }
    }

    /// Decrypts a data unit or a name of at least 16 bytes in place.
    pub(super) fn decrypt(&self, vector: &Vector, data: &mut [u8]) {
        let short = first_half(vector);
        match self {
            Self::Xts(xts) => xts.decrypt(short, data),
            Self::Cts256(cipher) => decrypt_cts(&**cipher, short, data),
            Self::Cts128(cipher) => decrypt_cts(&**cipher, short, data),
            Self::Cbc128 { data: cipher, vectors } => {
                let mut vector = short.into();
                vectors.encrypt_block(&mut vector);
                decrypt_cbc(&**cipher, vector.into(), data);
            }
            Self::Adiantum(cipher) => cipher.decrypt(vector, data),
            Self::Hctr2(cipher) => cipher.decrypt(vector, data),
        }
    }

    /// Encrypts a name in place. Contents are never encrypted.
    pub(super) fn encrypt(&self, vector: &Vector, name: &mut [u8]) {
        match self {
            Self::Cts256(cipher) => encrypt_cts(&**cipher, first_half(vector), name),
            Self::Cts128(cipher) => encrypt_cts(&**cipher, first_half(vector), name),
            Self::Adiantum(cipher) => cipher.encrypt(vector, name),
            Self::Hctr2(cipher) => cipher.encrypt(vector, name),
            Self::Xts(_) | Self::Cbc128 { .. } => debug_assert!(false, "a mode of contents"),
        }
    }
}

/// Returns the first 16 bytes.
fn first_half(vector: &Vector) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&vector[..16]);
    half
}
