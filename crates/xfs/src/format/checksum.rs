//! The checksum of version 5 metadata: CRC-32C over the whole structure with the checksum's own four
//! bytes as zeros, stored in little-endian order, unlike everything else.

use transaction::Corruption;

/// The checksum of `data`, whose checksum field is at `at`.
///
/// # Panics
/// If `data` ends before the field does.
pub fn compute(data: &[u8], at: usize) -> u32 {
    let crc = crc32c::crc32c(&data[..at]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &data[at + 4..])
}

/// The checksum that is stored at `at`.
fn stored(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// Brings the checksum field at `at` up to date.
pub fn seal(data: &mut [u8], at: usize) {
    let crc = compute(data, at);
    data[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks the checksum field at `at` of `structure`.
pub fn check(structure: &'static str, data: &[u8], at: usize) -> Result<(), Corruption> {
    let (computed, stored) = (compute(data, at), stored(data, at));
    if computed == stored { Ok(()) } else { Err(Corruption::checksum(structure, computed, stored)) }
}
