//! Ciphers of sectors: AES in the modes XTS and CBC.

use aes::cipher::generic_array::GenericArray;
use aes::cipher::generic_array::typenum::U16;
use aes::cipher::{BlockDecrypt, BlockEncrypt, BlockSizeUser, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use sha2::{Digest, Sha256};

use super::{HEADER, OPEN};
use crate::{LayerError, Result};

/// Unit of sector numbers in bytes.
pub const SECTOR: usize = 512;

/// Number of blocks whose tweaks are computed together: those of 512 bytes.
const BATCH: usize = SECTOR / 16;

type AesBlock = GenericArray<u8, U16>;

/// Cipher, mode and initial vectors, as a header names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// `aes-xts-plain64`, or `plain` if true.
    Xts(bool),
    /// `aes-cbc-essiv:sha256`.
    CbcEssiv,
    /// `aes-cbc-plain64`, or `plain` if true.
    CbcPlain(bool),
}

impl Cipher {
    /// Finds a cipher by its name, such as `aes-xts-plain64`.
    ///
    /// # Errors
    /// `Unsupported` with the name.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "aes-xts-plain64" => Self::Xts(false),
            "aes-xts-plain" => Self::Xts(true),
            "aes-cbc-essiv:sha256" => Self::CbcEssiv,
            "aes-cbc-plain64" => Self::CbcPlain(false),
            "aes-cbc-plain" => Self::CbcPlain(true),
            _ => {
                return Err(LayerError::unsupported(
                    format!("LUKS with the cipher {name:?}"),
                    OPEN,
                ));
            }
        })
    }

    /// Prepares the cipher with a key.
    ///
    /// # Errors
    /// If the key has a size that the cipher does not support.
    pub fn keyed(self, key: &[u8]) -> Result<Keyed> {
        let invalid = || {
            LayerError::damaged(HEADER, 0, format!("a key of {} bits for {self:?}", key.len() * 8))
        };
        match self {
            Self::Xts(short) => {
                let (data, tweak) = key.split_at(key.len() / 2);
                let data = Aes::new(data).filter(|_| key.len().is_multiple_of(2));
                let (data, tweak) = data.zip(Aes::new(tweak)).ok_or_else(invalid)?;
                Ok(Keyed { data, mode: Mode::Xts(tweak), short })
            }
            Self::CbcEssiv => {
                let salt = Aes::new(&Sha256::digest(key));
                let (data, salt) = Aes::new(key).zip(salt).ok_or_else(invalid)?;
                Ok(Keyed { data, mode: Mode::Cbc(Some(salt)), short: false })
            }
            Self::CbcPlain(short) => {
                Ok(Keyed { data: Aes::new(key).ok_or_else(invalid)?, mode: Mode::Cbc(None), short })
            }
        }
    }
}

/// AES with a key of one of its sizes.
enum Aes {
    Key128(Box<Aes128>),
    Key192(Box<Aes192>),
    Key256(Box<Aes256>),
}

/// Calls the same code for each key size, so that the loop over blocks is compiled for it.
macro_rules! with_key {
    ($aes:expr, $cipher:ident => $body:expr) => {
        match $aes {
            Aes::Key128($cipher) => $body,
            Aes::Key192($cipher) => $body,
            Aes::Key256($cipher) => $body,
        }
    };
}

impl Aes {
    fn new(key: &[u8]) -> Option<Self> {
        Some(match key.len() {
            16 => Self::Key128(Box::new(Aes128::new_from_slice(key).ok()?)),
            24 => Self::Key192(Box::new(Aes192::new_from_slice(key).ok()?)),
            32 => Self::Key256(Box::new(Aes256::new_from_slice(key).ok()?)),
            _ => return None,
        })
    }

    fn encrypt(&self, block: &mut [u8; 16]) {
        with_key!(self, cipher => cipher.encrypt_block(AesBlock::from_mut_slice(block)));
    }
}

enum Mode {
    /// With the cipher of tweaks.
    Xts(Aes),
    /// With the cipher of initial vectors, if they are encrypted.
    Cbc(Option<Aes>),
}

/// A cipher with its key.
pub struct Keyed {
    data: Aes,
    mode: Mode,
    /// Sector numbers have 32 bits.
    short: bool,
}

/// Direction of the cipher.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Decrypt,
    Encrypt,
}

impl Keyed {
    /// Decrypts whole sectors of `sector_bytes` bytes. `first` is the number of the first one, in units of 512 bytes.
    pub fn decrypt(&self, first: u64, sector_bytes: usize, data: &mut [u8]) {
        self.run(Direction::Decrypt, first, sector_bytes, data);
    }

    /// Encrypts whole sectors, like [`Self::decrypt`].
    pub fn encrypt(&self, first: u64, sector_bytes: usize, data: &mut [u8]) {
        self.run(Direction::Encrypt, first, sector_bytes, data);
    }

    fn run(&self, direction: Direction, first: u64, sector_bytes: usize, data: &mut [u8]) {
        let units = (sector_bytes / SECTOR) as u64;
        for (index, sector) in data.chunks_exact_mut(sector_bytes).enumerate() {
            let mut number = first.wrapping_add(index as u64 * units);
            if self.short {
                number &= u64::from(u32::MAX);
            }
            let mut vector = [0; 16];
            vector[..8].copy_from_slice(&number.to_le_bytes());
            match &self.mode {
                Mode::Xts(tweak) => {
                    tweak.encrypt(&mut vector);
                    with_key!(&self.data, cipher => xts(&**cipher, direction, vector, sector));
                }
                Mode::Cbc(essiv) => {
                    if let Some(essiv) = essiv {
                        essiv.encrypt(&mut vector);
                    }
                    with_key!(&self.data, cipher => cbc(&**cipher, direction, vector, sector));
                }
            }
        }
    }
}

/// Multiplies a tweak by x in GF(2^128), as IEEE 1619 defines it.
fn double(tweak: u128) -> u128 {
    (tweak << 1) ^ if tweak >> 127 == 1 { 0x87 } else { 0 }
}

fn xts<C>(cipher: &C, direction: Direction, tweak: [u8; 16], sector: &mut [u8])
where
    C: BlockEncrypt + BlockDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut tweak = u128::from_le_bytes(tweak);
    let mut tweaks = [0_u128; BATCH];
    let mut blocks = [AesBlock::default(); BATCH];
    for part in sector.chunks_mut(SECTOR) {
        let (bytes, _) = part.as_chunks_mut::<16>();
        let blocks = &mut blocks[..bytes.len()];
        for ((block, bytes), kept) in blocks.iter_mut().zip(&*bytes).zip(&mut tweaks) {
            *kept = tweak;
            *block = (u128::from_le_bytes(*bytes) ^ tweak).to_le_bytes().into();
            tweak = double(tweak);
        }
        match direction {
            Direction::Decrypt => cipher.decrypt_blocks(blocks),
            Direction::Encrypt => cipher.encrypt_blocks(blocks),
        }
        for ((block, bytes), tweak) in blocks.iter().zip(bytes).zip(&tweaks) {
            *bytes = (u128::from_le_bytes((*block).into()) ^ tweak).to_le_bytes();
        }
    }
}

fn cbc<C>(cipher: &C, direction: Direction, vector: [u8; 16], sector: &mut [u8])
where
    C: BlockEncrypt + BlockDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut previous = u128::from_ne_bytes(vector);
    for bytes in sector.as_chunks_mut::<16>().0 {
        let found = u128::from_ne_bytes(*bytes);
        if direction == Direction::Decrypt {
            let mut block: AesBlock = (*bytes).into();
            cipher.decrypt_block(&mut block);
            *bytes = (u128::from_ne_bytes(block.into()) ^ previous).to_ne_bytes();
            previous = found;
        } else {
            let mut block: AesBlock = (found ^ previous).to_ne_bytes().into();
            cipher.encrypt_block(&mut block);
            *bytes = block.into();
            previous = u128::from_ne_bytes(*bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    #[test]
    fn xts_agrees_with_the_vectors_of_ieee_1619() {
        // Vectors 1 and 10 of IEEE 1619-2007: the first and last bytes of the cipher text.
        let mut data = vec![0; 32];
        let cipher = Cipher::Xts(false).keyed(&[0; 32]).unwrap();
        let mut sector = vec![0; 512];
        cipher.encrypt(0, 512, &mut sector);
        data.copy_from_slice(&sector[..32]);
        assert_eq!(data, bytes("917cf69ebd68b2ec9b9fe9a3eadda692cd43d2f59598ed858c02c2652fbf922e"));
        let key = bytes(
            "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462\
             6433832795028841971693993751058209749445923078164062862089986280",
        );
        let mut sector: Vec<u8> = (0..512).map(|i| i as u8).collect();
        let cipher = Cipher::Xts(false).keyed(&key[..64]).unwrap();
        cipher.encrypt(0xff, 512, &mut sector);
        assert_eq!(sector[..16], bytes("1c3b3a102f770386e4836c99e370cf9b")[..]);
        cipher.decrypt(0xff, 512, &mut sector);
        assert!(sector.iter().enumerate().all(|(i, byte)| *byte == i as u8));
    }

    #[test]
    fn both_directions_agree_for_every_mode_and_sector_size() {
        let key: Vec<u8> = (0..64).collect();
        for (name, key_bytes) in [
            ("aes-xts-plain64", 64),
            ("aes-xts-plain", 32),
            ("aes-cbc-essiv:sha256", 32),
            ("aes-cbc-plain64", 16),
            ("aes-cbc-plain", 24),
        ] {
            let cipher = Cipher::named(name).unwrap().keyed(&key[..key_bytes]).unwrap();
            for sector_bytes in [512, 4096] {
                let plain: Vec<u8> = (0..8192).map(|i| (i / 7) as u8).collect();
                let mut data = plain.clone();
                cipher.encrypt(5 << 32, sector_bytes, &mut data);
                assert_ne!(data, plain);
                cipher.decrypt(5 << 32, sector_bytes, &mut data);
                assert_eq!(data, plain, "{name} {sector_bytes}");
            }
            assert!(Cipher::named(name).unwrap().keyed(&key[..10]).is_err());
        }
        assert!(Cipher::named("serpent-xts-plain64").is_err());
    }
}
