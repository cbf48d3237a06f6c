//! Golden images.

use std::collections::BTreeMap;
use std::io::Read;

use disk::{BlockDevice, MemoryDevice};
use parking_lot::Mutex;

macro_rules! golden {
    ($($name:literal),* $(,)?) => {
        /// Name and bytes of each golden image, compressed twice with gzip.
        pub const GOLDEN: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../golden/", $name, ".img.gz.gz")))),*];
    };
}

golden!(
    "default",
    "small-blocks",
    "plain",
    "large-directory-blocks",
    "v4",
    "v4-ftype",
    "shared",
    "metadir-quota",
);

/// Returns the bytes of a golden image.
pub fn golden(name: &str) -> Vec<u8> {
    let (_, packed) = GOLDEN.iter().find(|(known, _)| *known == name).expect("a golden image");
    unpack(packed)
}

/// Decompresses gzip twice.
pub fn unpack(packed: &[u8]) -> Vec<u8> {
    let once = flate2::read::GzDecoder::new(packed);
    let mut bytes = Vec::new();
    let twice = flate2::read::GzDecoder::new(once).read_to_end(&mut bytes);
    twice.expect("gzip of this repository");
    bytes
}

/// Images by the address of their packed bytes.
static UNPACKED: Mutex<BTreeMap<usize, MemoryDevice>> = Mutex::new(BTreeMap::new());

/// Unpacks a large image that is mostly zero. Later calls return copies, because unpacking takes seconds.
pub fn unpack_device(packed: &'static [u8]) -> MemoryDevice {
    let mut unpacked = UNPACKED.lock();
    let device = unpacked.entry(packed.as_ptr().addr()).or_insert_with(|| unpack_sparse(packed));
    device.fork()
}

fn unpack_sparse(packed: &[u8]) -> MemoryDevice {
    const PIECE_BYTES: usize = 1 << 20;
    let unpacked = || flate2::read::GzDecoder::new(flate2::read::GzDecoder::new(packed));
    let len =
        std::io::copy(&mut unpacked(), &mut std::io::sink()).expect("gzip of this repository");
    let device = MemoryDevice::new(len);
    let (mut source, mut piece) = (unpacked(), vec![0; PIECE_BYTES]);
    let zeros = vec![0; PIECE_BYTES];
    for at in (0..len).step_by(PIECE_BYTES) {
        let now = &mut piece[..PIECE_BYTES.min((len - at) as usize)];
        source.read_exact(now).expect("gzip of this repository");
        if *now != zeros[..now.len()] {
            device.write_at(at, now).expect("memory does not fail");
        }
    }
    device
}

/// Returns a device with these bytes.
pub fn device(bytes: &[u8]) -> MemoryDevice {
    MemoryDevice::from_bytes(bytes)
}
