//! Hashes and derivation of keys from passphrases, with limits for hostile headers.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use hmac::Hmac;
use zeroize::Zeroizing;

use super::{HEADER, OPEN};
use crate::{LayerError, Result};

/// Maximum number of iterations of PBKDF2. cryptsetup chooses a few millions on fast machines.
const ITERATIONS_MAX: u32 = 200_000_000;
/// Maximum memory of Argon2 in KiB: the maximum of cryptsetup.
const MEMORY_KIB_MAX: u32 = 4 << 20;
/// Maximum product of Argon2's memory in KiB and its passes: 100 passes over 1 GiB.
const ARGON2_WORK_MAX: u64 = 100 << 20;

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-1.
    Sha1,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
    /// RIPEMD-160.
    Ripemd160,
}

impl Hash {
    /// Finds a hash by its name in a header.
    ///
    /// # Errors
    /// `Unsupported` with the name.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "sha1" => Self::Sha1,
            "sha224" => Self::Sha224,
            "sha256" => Self::Sha256,
            "sha384" => Self::Sha384,
            "sha512" => Self::Sha512,
            "ripemd160" => Self::Ripemd160,
            _ => return Err(LayerError::unsupported(format!("LUKS with the hash {name:?}"), OPEN)),
        })
    }

    /// Returns the size of a digest in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha1 | Self::Ripemd160 => 20,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Returns the digest of parts.
    pub(super) fn of(self, parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        fn digest<D: sha2::Digest>(parts: &[&[u8]]) -> Vec<u8> {
            let mut hasher = D::new();
            parts.iter().for_each(|part| hasher.update(part));
            hasher.finalize().to_vec()
        }
        Zeroizing::new(match self {
            Self::Sha1 => digest::<sha1::Sha1>(parts),
            Self::Sha224 => digest::<sha2::Sha224>(parts),
            Self::Sha256 => digest::<sha2::Sha256>(parts),
            Self::Sha384 => digest::<sha2::Sha384>(parts),
            Self::Sha512 => digest::<sha2::Sha512>(parts),
            Self::Ripemd160 => digest::<ripemd::Ripemd160>(parts),
        })
    }
}

/// Derivation of a key.
#[derive(Clone, Debug)]
pub enum Kdf {
    /// PBKDF2 with HMAC.
    Pbkdf2 {
        /// Hash of the HMAC.
        hash: Hash,
        /// Number of iterations.
        iterations: u32,
        /// Salt.
        salt: Vec<u8>,
    },
    /// Argon2.
    Argon2 {
        /// True for Argon2id, false for Argon2i.
        is_id: bool,
        /// Number of passes.
        time: u32,
        /// Memory in KiB.
        memory_kib: u32,
        /// Number of lanes.
        lanes: u32,
        /// Salt.
        salt: Vec<u8>,
    },
}

impl Kdf {
    /// Derives a key.
    ///
    /// # Errors
    /// If the parameters are invalid, or need more work or memory than the limits.
    pub(super) fn derive(&self, passphrase: &[u8], key_bytes: usize) -> Result<Zeroizing<Vec<u8>>> {
        let mut key = Zeroizing::new(vec![0; key_bytes]);
        match self {
            Self::Pbkdf2 { hash, iterations, salt } => {
                if *iterations == 0 || *iterations > ITERATIONS_MAX {
                    let problem =
                        format!("{iterations} iterations, expected 1 to {ITERATIONS_MAX}");
                    return Err(LayerError::damaged(HEADER, 0, problem));
                }
                pbkdf2_of(*hash, passphrase, salt, *iterations, &mut key);
            }
            Self::Argon2 { is_id, time, memory_kib, lanes, salt } => {
                let algorithm = if *is_id { Algorithm::Argon2id } else { Algorithm::Argon2i };
                let work = u64::from(*time) * u64::from(*memory_kib);
                if *memory_kib > MEMORY_KIB_MAX || work > ARGON2_WORK_MAX {
                    let problem =
                        format!("Argon2 with {time} passes over {memory_kib} KiB is too much work");
                    return Err(LayerError::damaged(HEADER, 0, problem));
                }
                argon2_of(algorithm, (*time, *memory_kib, *lanes), (passphrase, salt), &mut key)?;
            }
        }
        Ok(key)
    }
}

fn pbkdf2_of(hash: Hash, passphrase: &[u8], salt: &[u8], iterations: u32, key: &mut [u8]) {
    // An HMAC accepts keys of any length.
    let _ = match hash {
        Hash::Sha1 => pbkdf2::pbkdf2::<Hmac<sha1::Sha1>>(passphrase, salt, iterations, key),
        Hash::Sha224 => pbkdf2::pbkdf2::<Hmac<sha2::Sha224>>(passphrase, salt, iterations, key),
        Hash::Sha256 => pbkdf2::pbkdf2::<Hmac<sha2::Sha256>>(passphrase, salt, iterations, key),
        Hash::Sha384 => pbkdf2::pbkdf2::<Hmac<sha2::Sha384>>(passphrase, salt, iterations, key),
        Hash::Sha512 => pbkdf2::pbkdf2::<Hmac<sha2::Sha512>>(passphrase, salt, iterations, key),
        Hash::Ripemd160 => {
            pbkdf2::pbkdf2::<Hmac<ripemd::Ripemd160>>(passphrase, salt, iterations, key)
        }
    };
}

fn argon2_of(
    algorithm: Algorithm,
    (time, memory_kib, lanes): (u32, u32, u32),
    (passphrase, salt): (&[u8], &[u8]),
    key: &mut [u8],
) -> Result<()> {
    let bad = |problem: String| LayerError::damaged(HEADER, 0, problem);
    let params = Params::new(memory_kib, time, lanes, Some(key.len()))
        .map_err(|error| bad(format!("Argon2: {error}")))?;
    let count = params.block_count();
    let mut blocks: Vec<Block> = Vec::new();
    if blocks.try_reserve_exact(count).is_err() {
        let source = std::io::ErrorKind::OutOfMemory.into();
        return Err(LayerError::Device {
            what: "a key slot, which needs memory for Argon2,",
            at: 0,
            source,
        });
    }
    blocks.resize(count, Block::default());
    let argon2 = Argon2::new(algorithm, Version::V0x13, params);
    let derived = argon2.hash_password_into_with_memory(passphrase, salt, key, &mut blocks);
    derived.map_err(|error| bad(format!("Argon2: {error}")))
}
