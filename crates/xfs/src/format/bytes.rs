//! Big-endian numbers in byte slices, for structures whose place varies.

/// The big-endian `u16` at `at`.
pub fn be16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([data[at], data[at + 1]])
}

/// The big-endian `u32` at `at`.
pub fn be32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// The big-endian `u64` at `at`.
pub fn be64(data: &[u8], at: usize) -> u64 {
    u64::from(be32(data, at)) << 32 | u64::from(be32(data, at + 4))
}

/// Writes a big-endian `u16` at `at`.
pub fn put16(data: &mut [u8], at: usize, value: u16) {
    data[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian `u32` at `at`.
pub fn put32(data: &mut [u8], at: usize, value: u32) {
    data[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian `u64` at `at`.
pub fn put64(data: &mut [u8], at: usize, value: u64) {
    data[at..at + 8].copy_from_slice(&value.to_be_bytes());
}
