//! `struct fsverity_descriptor`, the input of a file's digest.

use disk::merkle::Digest;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes};

/// The only defined version.
const VERSION: u8 = 1;

/// `FS_VERITY_HASH_ALG_SHA256`.
const SHA256: u8 = 1;

#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Descriptor {
    version: u8,
    hash_algorithm: u8,
    log_block_size: u8,
    salt_size: u8,
    signature_size: U32,
    data_size: U64,
    root_hash: [u8; 64],
    salt: [u8; 32],
    reserved: [u8; 144],
}

const _: () = assert!(size_of::<Descriptor>() == 256);

impl Descriptor {
    /// Returns a descriptor without salt and without a signature.
    pub(super) fn new(data_size: u64, block_size: u32, root: &Digest) -> Self {
        let mut root_hash = [0; 64];
        root_hash[..root.len()].copy_from_slice(root);
        Self {
            version: VERSION,
            hash_algorithm: SHA256,
            log_block_size: block_size.trailing_zeros() as u8,
            salt_size: 0,
            signature_size: 0.into(),
            data_size: data_size.into(),
            root_hash,
            salt: [0; 32],
            reserved: [0; 144],
        }
    }
}
