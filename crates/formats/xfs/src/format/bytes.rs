//! Big-endian numbers in byte slices, for structures at variable offsets.

/// Returns `N` bytes at `at`, with a single bounds check.
#[inline]
fn bytes<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&data[at..at + N]);
    bytes
}

/// Reads a big-endian `u16` at `at`.
#[inline]
pub fn be16(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes(data, at))
}

/// Reads a big-endian `u32` at `at`.
#[inline]
pub fn be32(data: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes(data, at))
}

/// Reads a big-endian `u64` at `at`.
#[inline]
pub(crate) fn be64(data: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes(data, at))
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
