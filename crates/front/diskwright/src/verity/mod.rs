//! Hash trees for dm-verity. The kernel or a program verifies each block of an image when it is read; the root hash
//! authenticates the whole image.
//!
//! A hash area consists of a superblock in its own block, followed by the tree, root first. It is located after the
//! file system or in a separate file.

mod superblock;

use std::fs::File;
use std::path::PathBuf;
use vfs::hint::Setting;

use disk::FileAt;
use disk::merkle::{Ground, TreeShape};
use disk::output::Error;
use serde::Serialize;
use zerocopy::IntoBytes;

use crate::host;
use crate::text::hex;
use superblock::{SALT_BYTES_MAX, Superblock};

/// Size of data and tree blocks in bytes. All kernels support it, and Android boots from it. File systems on such a
/// device cannot have smaller blocks.
pub(crate) const BLOCK_BYTES: u32 = 4096;

/// Domain separators of the hashes from which salts and UUIDs are derived.
const SALT_DOMAIN: &[u8] = b"diskwright dm-verity salt";
const UUID_DOMAIN: &[u8] = b"diskwright dm-verity uuid";

/// Options of a hash tree.
#[derive(Clone, Debug, Default)]
pub struct Verity {
    /// Separate output file; `None` appends the tree to the file system.
    pub file: Option<PathBuf>,
    /// Salt of all digests, at most 256 bytes; `None` derives it from the block with the superblock, which contains the
    /// UUID.
    pub salt: Option<Vec<u8>>,
    /// UUID of the hash area; `None` derives it from the root hash.
    pub uuid: Option<[u8; 16]>,
}

/// Hash tree, in the terms of `veritysetup`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerityReport {
    /// Root hash in hexadecimal.
    pub root_hash: String,
    /// Salt in hexadecimal.
    pub salt: String,
    /// Hash algorithm.
    pub algorithm: &'static str,
    /// UUID with dashes.
    pub uuid: String,
    /// Data block size in bytes.
    pub data_block_size: u32,
    /// Hash block size in bytes.
    pub hash_block_size: u32,
    /// Number of data blocks.
    pub data_blocks: u64,
    /// Byte offset of the hash area in its file.
    pub hash_offset: u64,
    /// Size of the hash area in bytes.
    pub hash_bytes: u64,
}

impl Verity {
    /// Checks the options.
    ///
    /// # Errors
    /// A message with the reason.
    pub fn check(&self) -> Result<(), String> {
        match &self.salt {
            Some(salt) if salt.len() > SALT_BYTES_MAX => Err(format!(
                "the salt has {} bytes, more than the dm-verity maximum of {SALT_BYTES_MAX}",
                salt.len()
            )),
            _ => Ok(()),
        }
    }
}

/// Returns the size of the hash area for data of this size, in bytes.
pub(crate) fn area_bytes(data_bytes: u64) -> u64 {
    u64::from(BLOCK_BYTES) + TreeShape::new(data_bytes, BLOCK_BYTES, BLOCK_BYTES).tree_bytes()
}

/// Locations of data and hash area.
pub(crate) struct VerityLayout<'a> {
    /// The image.
    pub(crate) data: &'a File,
    /// Size of the image, a multiple of the block size.
    pub(crate) data_bytes: u64,
    /// File of the hash area.
    pub(crate) hash: &'a File,
    /// Byte offset of the hash area in its file.
    pub(crate) hash_offset: u64,
    /// Callback with the number of image bytes read.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
}

/// Computes the tree of a finished image and writes the hash area.
pub(crate) fn protect(
    place: &VerityLayout<'_>,
    verity: &Verity,
    threads: usize,
) -> Result<VerityReport, Error> {
    let shape = TreeShape::new(place.data_bytes, BLOCK_BYTES, BLOCK_BYTES);
    let salt = match &verity.salt {
        Some(salt) => salt.clone(),
        None => derived_salt(place)?,
    };
    let root = disk::merkle::build(place, &shape, &salt, threads)?;
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

/// Returns a salt derived from the image, so that the same image has the same salt.
fn derived_salt(place: &VerityLayout<'_>) -> Result<Vec<u8>, Error> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    place.read_data(0, &mut block)?;
    Ok(disk::merkle::digest(&[SALT_DOMAIN, &block]).to_vec())
}

fn derived_uuid(root: &disk::merkle::Digest) -> [u8; 16] {
    let hash = disk::merkle::digest(&[UUID_DOMAIN, root]);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
}

impl VerityLayout<'_> {
    /// Returns the file offset of a byte of the tree, which follows the superblock's block.
    fn tree(&self, offset: u64) -> u64 {
        self.hash_offset + u64::from(BLOCK_BYTES) + offset
    }
}

impl Ground for VerityLayout<'_> {
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

/// Rejects image sizes that are not a multiple of the block size.
pub(crate) fn check_size(bytes: u64) -> Result<(), Error> {
    if bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES.into()) {
        return Ok(());
    }
    let why = format!(
        "{bytes} bytes are not a multiple of its block size of {BLOCK_BYTES} bytes; choose such a \
         {}",
        Setting::SIZE
    );
    Err(Error::Unfit { format: "dm-verity", why })
}

/// Rejects file systems with blocks smaller than those of the tree.
pub(crate) fn check_block_size(bytes: u32) -> Result<(), Error> {
    if bytes >= BLOCK_BYTES {
        return Ok(());
    }
    let why = format!(
        "a device with {BLOCK_BYTES}-byte blocks cannot contain a file system with {bytes}-byte \
         blocks; leave {} out, or use at least 4K",
        Setting::new("block-size")
    );
    Err(Error::Unfit { format: "dm-verity", why })
}

/// Checks that a device has space for the hash area after the data.
pub(crate) fn check_room(device_bytes: u64, data_bytes: u64) -> Result<(), Error> {
    let end = data_bytes.saturating_add(area_bytes(data_bytes));
    if end <= device_bytes {
        return Ok(());
    }
    let why = format!(
        "the file system and its hash tree need {end} bytes, but the device has {device_bytes}; \
         choose a smaller {}, or a file for the tree: --verity=FILE",
        Setting::SIZE
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
        let place = VerityLayout {
            data: &image,
            data_bytes,
            hash: &hash,
            hash_offset: 0,
            progress: &|_| (),
        };
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
        // The last level contains the data digests. The root hash is that of the block after the superblock.
        let salted = |block: &[u8]| disk::merkle::digest(&[&[1, 2, 3], block]);
        assert_eq!(bytes[8192..8224], salted(&data[..4096]));
        assert_eq!(report.root_hash, hex(&salted(&bytes[4096..8192])));
    }

    #[test]
    fn defaults_are_derived_from_the_image() {
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
    fn images_without_space_for_a_hash_tree_are_refused() {
        assert!(check_size(8192).is_ok());
        assert!(check_size(5120).unwrap_err().to_string().contains("--size"));
        assert!(check_block_size(1024).unwrap_err().to_string().contains("--block-size"));
        assert!(check_room(1 << 30, 1 << 30).unwrap_err().to_string().contains("--verity=FILE"));
        assert!(check_room(1 << 30, 1 << 29).is_ok());
        let salt = Some(vec![0; 257]);
        assert!(Verity { salt, ..Verity::default() }.check().unwrap_err().contains("256"));
    }
}
