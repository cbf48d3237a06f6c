//! Hash trees for dm-verity: with one, the kernel (or a program) verifies each block of an image when it is read,
//! and the root hash stands for all of it.
//!
//! A hash area is a superblock in a block of its own, then the tree, top first. It lies behind the file system or in
//! a file of its own.

mod superblock;

use std::fs::File;
use std::path::PathBuf;

use ::output::Error;
use blockdev::FileAt;
use merkle::{Ground, Shape};
use serde::Serialize;
use zerocopy::IntoBytes;

use crate::host;
use crate::text::hex;
use superblock::{SALT_BYTES_MAX, Superblock};

/// Bytes of a block of data and of a block of the tree: what every kernel can read, and Android boots from. A device
/// of such blocks holds no file system with smaller ones.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// Set the hashes that salts and UUIDs follow from apart from any other use.
const SALT_DOMAIN: &[u8] = b"diskwright dm-verity salt";
const UUID_DOMAIN: &[u8] = b"diskwright dm-verity uuid";

/// A hash tree that is wanted.
#[derive(Clone, Debug, Default)]
pub struct Verity {
    /// A file for it; `None` puts it behind the file system.
    pub file: Option<PathBuf>,
    /// Goes into every digest, at most 256 bytes; `None` derives it from the block with the superblock, which has the
    /// UUID.
    pub salt: Option<Vec<u8>>,
    /// UUID of the hash area; `None` derives it from the root hash.
    pub uuid: Option<[u8; 16]>,
}

/// A hash tree that was made, in the terms of `veritysetup`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerityReport {
    /// The root hash, in hexadecimal.
    pub root_hash: String,
    /// The salt, in hexadecimal.
    pub salt: String,
    /// The hash algorithm.
    pub algorithm: &'static str,
    /// UUID with dashes.
    pub uuid: String,
    /// Bytes of a block of data.
    pub data_block_size: u32,
    /// Bytes of a block of the tree.
    pub hash_block_size: u32,
    /// Blocks of data.
    pub data_blocks: u64,
    /// Where the hash area begins in its file.
    pub hash_offset: u64,
    /// Bytes of the hash area.
    pub hash_bytes: u64,
}

impl Verity {
    /// Whether there can be such a tree.
    ///
    /// # Errors
    /// Why not, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        match &self.salt {
            Some(salt) if salt.len() > SALT_BYTES_MAX => Err(format!(
                "the salt has {} bytes: dm-verity has room for {SALT_BYTES_MAX}",
                salt.len()
            )),
            _ => Ok(()),
        }
    }
}

/// Bytes of the hash area for so much data.
pub(crate) fn area_bytes(data_bytes: u64) -> u64 {
    u64::from(BLOCK_BYTES) + Shape::new(data_bytes, BLOCK_BYTES, BLOCK_BYTES).tree_bytes()
}

/// Where data lies and where its tree goes.
pub(crate) struct Place<'a> {
    /// The image.
    pub(crate) data: &'a File,
    /// Its size, in whole blocks.
    pub(crate) data_bytes: u64,
    /// The file that gets the hash area.
    pub(crate) hash: &'a File,
    /// Where it goes there.
    pub(crate) hash_offset: u64,
    /// Told how many bytes of the image have been read.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// Computes the tree of a finished image and writes the hash area.
pub(crate) fn protect(
    place: &Place<'_>,
    verity: &Verity,
    threads: usize,
) -> Result<VerityReport, Error> {
    let shape = Shape::new(place.data_bytes, BLOCK_BYTES, BLOCK_BYTES);
    let salt = match &verity.salt {
        Some(salt) => salt.clone(),
        None => derived_salt(place)?,
    };
    let root = merkle::build(place, &shape, &salt, threads)?;
    let uuid = verity.uuid.unwrap_or_else(|| derived_uuid(&root));
    let mut block = vec![0; BLOCK_BYTES as usize];
    let superblock = Superblock::new(uuid, &shape, &salt);
    block[..size_of::<Superblock>()].copy_from_slice(superblock.as_bytes());
    place.hash.write_all_at(&block, place.hash_offset).map_err(Error::Write)?;
    Ok(VerityReport {
        root_hash: hex(&root),
        salt: hex(&salt),
        algorithm: "sha256",
        uuid: uuid::Uuid::from_bytes(uuid).to_string(),
        data_block_size: shape.data_block(),
        hash_block_size: shape.hash_block(),
        data_blocks: shape.data_blocks(),
        hash_offset: place.hash_offset,
        hash_bytes: area_bytes(place.data_bytes),
    })
}

/// A salt that differs between images, and is the same for the same one.
fn derived_salt(place: &Place<'_>) -> Result<Vec<u8>, Error> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    place.read_data(0, &mut block)?;
    Ok(merkle::digest(&[SALT_DOMAIN, &block]).to_vec())
}

fn derived_uuid(root: &merkle::Digest) -> [u8; 16] {
    let hash = merkle::digest(&[UUID_DOMAIN, root]);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
}

impl Place<'_> {
    /// Where a byte of the tree lies: behind the block of the superblock.
    fn tree(&self, offset: u64) -> u64 {
        self.hash_offset + u64::from(BLOCK_BYTES) + offset
    }
}

impl Ground for Place<'_> {
    type Error = Error;

    fn read_data(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.data.read_exact_at(buf, offset).map_err(Error::Read)
    }

    fn is_hole(&self, offset: u64, len: u64) -> bool {
        match host::next_data_start(self.data, offset) {
            Some(data) => data >= offset + len,
            None => offset + len <= self.data_bytes,
        }
    }

    fn read_tree(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        self.hash.read_exact_at(buf, self.tree(offset)).map_err(Error::Read)
    }

    fn write_tree(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        self.hash.write_all_at(bytes, self.tree(offset)).map_err(Error::Write)
    }

    fn done(&self, bytes: u64) {
        (self.progress)(bytes);
    }
}

/// Why a file of a size that is no multiple of the block cannot have a tree.
pub(crate) fn check_size(bytes: u64) -> Result<(), Error> {
    if bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES.into()) {
        return Ok(());
    }
    let why = format!(
        "its blocks are {BLOCK_BYTES} bytes, and {bytes} bytes are no multiple of that; give such a --size"
    );
    Err(Error::Unfit { format: "dm-verity", why })
}

/// Whether a file system may have blocks of this size.
pub(crate) fn check_block_size(bytes: u32) -> Result<(), Error> {
    if bytes >= BLOCK_BYTES {
        return Ok(());
    }
    let why = format!(
        "a device of blocks of {BLOCK_BYTES} bytes holds no file system with blocks of {bytes}; \
         leave --block-size out, or give 4K or more"
    );
    Err(Error::Unfit { format: "dm-verity", why })
}

/// Whether what lies in a device leaves room for the hash area.
pub(crate) fn check_room(device_bytes: u64, data_bytes: u64) -> Result<(), Error> {
    let end = data_bytes.saturating_add(area_bytes(data_bytes));
    if end <= device_bytes {
        return Ok(());
    }
    let why = format!(
        "the file system and its tree take {end} bytes, and the device has {device_bytes}; \
         give a smaller --size, or a file for the tree: --verity=FILE"
    );
    Err(Error::Unfit { format: "dm-verity", why })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area(data: &[u8], verity: &Verity, threads: usize) -> (VerityReport, Vec<u8>) {
        let (image, hash) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        image.write_all_at(data, 0).unwrap();
        let data_bytes = data.len() as u64;
        let place =
            Place { data: &image, data_bytes, hash: &hash, hash_offset: 0, progress: &|_| () };
        let report = protect(&place, verity, threads).unwrap();
        let mut bytes = vec![0; hash.metadata().unwrap().len() as usize];
        hash.read_exact_at(&mut bytes, 0).unwrap();
        (report, bytes)
    }

    #[test]
    fn the_hash_area_is_that_of_the_format() {
        let data: Vec<u8> = (0..200 * 4096_u32).map(|at| (at / 5 % 253) as u8).collect();
        let verity = Verity { salt: Some(vec![1, 2, 3]), uuid: Some([7; 16]), file: None };
        let (report, bytes) = area(&data, &verity, 1);
        assert_eq!(bytes.len() as u64, report.hash_bytes);
        assert_eq!(bytes.len(), 4096 * 4);
        assert_eq!(&bytes[..8], b"verity\0\0");
        assert_eq!(bytes[8..16], [1, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[16..32], [7; 16]);
        assert_eq!(&bytes[32..39], b"sha256\0");
        assert_eq!(bytes[64..80], [0, 16, 0, 0, 0, 16, 0, 0, 200, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[80..92], [3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 0]);
        // The digests of the data are last, and the root is that of the block after the superblock.
        let salted = |block: &[u8]| merkle::digest(&[&[1, 2, 3], block]);
        assert_eq!(bytes[8192..8224], salted(&data[..4096]));
        assert_eq!(report.root_hash, hex(&salted(&bytes[4096..8192])));
    }

    #[test]
    fn what_is_not_given_follows_from_the_image() {
        let data = vec![3; 300 * 4096];
        let first = area(&data, &Verity::default(), 1);
        assert_eq!(first, area(&data, &Verity::default(), 4));
        let mut other = data;
        other[0] = 4;
        let second = area(&other, &Verity::default(), 1);
        assert_ne!(first.0.salt, second.0.salt);
        assert_ne!(first.0.uuid, second.0.uuid);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(check_size(8192).is_ok());
        assert!(check_size(5120).unwrap_err().to_string().contains("--size"));
        assert!(check_block_size(1024).unwrap_err().to_string().contains("--block-size"));
        assert!(check_room(1 << 30, 1 << 30).unwrap_err().to_string().contains("--verity=FILE"));
        assert!(check_room(1 << 30, 1 << 29).is_ok());
        let salt = Some(vec![0; 257]);
        assert!(Verity { salt, ..Verity::default() }.check().unwrap_err().contains("256"));
    }
}
