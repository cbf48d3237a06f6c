//! Digests of data.

use std::io;

use disk::BlockDevice;

const CHUNK_BYTES: usize = 1 << 20;

/// A running CRC-32C of data, each piece with its length.
#[derive(Default)]
pub(crate) struct Digest(u32);

impl Digest {
    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, &(piece.len() as u64).to_le_bytes());
        self.0 = crc32c::crc32c_append(self.0, piece);
    }

    pub(crate) fn finish(&self) -> u32 {
        self.0
    }
}

/// Returns all bytes of a device.
pub(crate) fn bytes_of(device: &dyn BlockDevice) -> io::Result<Vec<u8>> {
    let len = usize::try_from(device.len()).map_err(io::Error::other)?;
    let mut bytes = vec![0; len];
    device.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Returns the digest of all bytes of a device.
pub(crate) fn of_device(device: &dyn BlockDevice) -> io::Result<u32> {
    let (mut crc, mut at, mut chunk) = (0, 0, vec![0; CHUNK_BYTES]);
    while at < device.len() {
        let len = (device.len() - at).min(chunk.len() as u64) as usize;
        device.read_at(at, &mut chunk[..len])?;
        crc = crc32c::crc32c_append(crc, &chunk[..len]);
        at += len as u64;
    }
    Ok(crc)
}
