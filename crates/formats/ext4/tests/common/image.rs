//! Golden images, and ways to damage them.

use std::io::Read;
use std::sync::Arc;

use disk::MemoryDevice;

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        /// Name and gzip-compressed bytes of each golden image.
        pub const GOLDEN: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../golden/", $name, ".img.gz")))),*];
    };
}

golden!(
    "ext2-rev0",
    "ext3",
    "ext4",
    "ext4-plain",
    "inline",
    "ea-inode",
    "casefold",
    "groups",
    "meta-bg",
    "deep-index",
    "deep-index-plain",
    "journal",
);

/// A compressed image with encrypted directories, made by `golden/make-encrypted`.
pub const ENCRYPTED: &[u8] = include_bytes!("../golden/encrypted.img.gz");

/// Returns the bytes of a golden image.
pub fn golden(name: &str) -> Vec<u8> {
    let (_, packed) = GOLDEN.iter().find(|(known, _)| *known == name).expect("a golden image");
    unpack(packed)
}

/// Decompresses gzip data.
pub fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).expect("gzip of this repository");
    bytes
}

/// Returns a device with these contents.
pub fn device(bytes: &[u8]) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_bytes(bytes))
}
