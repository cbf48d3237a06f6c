//! Checksums of ext4 metadata.
//!
//! ext4 uses the CRC-32C register without inversions: it starts with a seed and is not inverted at the end. The
//! `crc32c` crate inverts before and after, which [`crc32c()`] compensates.

use vfs::Ino;

/// Continues a CRC-32C register (Castagnoli, reflected) over `bytes`, without inversions.
#[must_use]
pub fn crc32c(register: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!register, bytes)
}

/// Returns the seed of all metadata checksums of a file system with this uuid.
#[must_use]
pub(crate) fn file_system_seed(uuid: &[u8; 16]) -> u32 {
    crc32c(u32::MAX, uuid)
}

/// Returns the checksum seed of an inode and of the blocks that belong to it.
#[must_use]
pub fn inode_seed(file_system_seed: u32, ino: Ino, generation: u32) -> u32 {
    // Inode numbers have 32 bits on disk.
    let bytes = u64::from(generation) << 32 | u64::from(ino.0 as u32);
    crc32c(file_system_seed, &bytes.to_le_bytes())
}

/// Table for CRC-16 per byte: polynomial 0x8005, reflected.
const CRC16_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xa001 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Continues the CRC-16 register of group descriptors without `metadata_csum`.
#[must_use]
pub fn crc16(register: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(register, |crc, &byte| {
        (crc >> 8) ^ CRC16_TABLE[usize::from((crc ^ u16::from(byte)) & 0xff)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_the_catalogue() {
        assert_eq!(!crc32c(u32::MAX, b"123456789"), 0xe306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }

    #[test]
    fn a_register_continues() {
        let whole = crc32c(7, b"one two");
        assert_eq!(crc32c(crc32c(7, b"one"), b" two"), whole);
    }
}
