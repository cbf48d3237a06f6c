//! Superblock of a dm-verity hash tree, as read by `veritysetup`. Source: "Verity superblock format" in the cryptsetup
//! wiki (DMVerity). All numbers are little-endian.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{Immutable, IntoBytes};

const SIGNATURE: [u8; 8] = *b"verity\0\0";

/// Only version of the superblock.
const VERSION: u32 = 1;

/// Hash type: the salt precedes the block, and digests are padded to powers of two.
const HASH_TYPE: u32 = 1;

/// Maximum size of the salt in bytes.
pub(super) const SALT_BYTES_MAX: usize = 256;

#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Superblock {
    signature: [u8; 8],
    version: U32,
    hash_type: U32,
    uuid: [u8; 16],
    algorithm: [u8; 32],
    data_block_size: U32,
    hash_block_size: U32,
    data_blocks: U64,
    salt_size: U16,
    pad: [u8; 6],
    salt: [u8; SALT_BYTES_MAX],
    end: [u8; 168],
}

const _: () = assert!(size_of::<Superblock>() == 512);

impl Superblock {
    /// Creates a superblock for SHA-256. The salt must not exceed its maximum size.
    pub(super) fn new(uuid: [u8; 16], shape: &disk::merkle::TreeShape, salt: &[u8]) -> Self {
        let mut algorithm = [0; 32];
        algorithm[..6].copy_from_slice(b"sha256");
        let mut padded = [0; SALT_BYTES_MAX];
        padded[..salt.len()].copy_from_slice(salt);
        Self {
            signature: SIGNATURE,
            version: VERSION.into(),
            hash_type: HASH_TYPE.into(),
            uuid,
            algorithm,
            data_block_size: shape.data_block().into(),
            hash_block_size: shape.hash_block().into(),
            data_blocks: shape.data_blocks().into(),
            salt_size: (salt.len() as u16).into(),
            pad: [0; 6],
            salt: padded,
            end: [0; 168],
        }
    }
}
