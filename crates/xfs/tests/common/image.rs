//! Golden images.

use std::io::Read;

use blockdev::MemoryDevice;

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        /// Name and bytes of each golden image, compressed twice with gzip.
        pub const GOLDEN: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../golden/", $name, ".img.gz.gz")))),*];
    };
}

golden!("default", "small-blocks", "plain", "large-directory-blocks", "v4", "v4-ftype", "shared");

/// The bytes of a golden image.
pub fn golden(name: &str) -> Vec<u8> {
    let (_, packed) = GOLDEN.iter().find(|(known, _)| *known == name).expect("a golden image");
    unpack(packed)
}

/// Undoes gzip, twice.
pub fn unpack(packed: &[u8]) -> Vec<u8> {
    let once = flate2::read::GzDecoder::new(packed);
    let mut bytes = Vec::new();
    let twice = flate2::read::GzDecoder::new(once).read_to_end(&mut bytes);
    twice.expect("gzip of this repository");
    bytes
}

/// A device that holds these bytes.
pub fn device(bytes: &[u8]) -> MemoryDevice {
    MemoryDevice::from_bytes(bytes)
}
