//! The checksum of a record: over the header with the checksum field as zeros, the used part of the further headers,
//! and all following blocks as they are in the log.

use super::{BLOCK_SIZE, BUFFER_SIZE};

/// Size of the first header for the checksum: on machines that align 64-bit numbers, and on others.
const HEADER_SIZES: [usize; 2] = [328, 324];
/// Size of each further header for the checksum.
const EXTENSION_SIZE: usize = 260;
/// Byte offset of the checksum.
const CRC_OFFSET: usize = 32;

/// A wrong checksum of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The checksum of the record's bytes.
    pub computed: u32,
    /// The stored checksum.
    pub stored: u32,
}

/// Checks the checksum of a record. `headers` contains all of its header blocks.
///
/// # Errors
/// If it differs. A `stored` of 0 may mean that the record has no checksum.
pub(crate) fn check_record(headers: &[u8], body: &[u8]) -> Result<(), Mismatch> {
    let stored = &headers[CRC_OFFSET..CRC_OFFSET + 4];
    let stored = u32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
    let computed = HEADER_SIZES.map(|size| compute(headers, size, body));
    if computed.contains(&stored) {
        return Ok(());
    }
    Err(Mismatch { computed: computed[0], stored })
}

/// Updates the checksum of a record that starts with its headers.
pub fn seal_record(record: &mut [u8], header_blocks: usize) {
    let (headers, body) = record.split_at(header_blocks * BLOCK_SIZE);
    let crc = compute(headers, HEADER_SIZES[0], body);
    record[CRC_OFFSET..CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
}

fn compute(headers: &[u8], header_size: usize, body: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&headers[..CRC_OFFSET]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    let crc = crc32c::crc32c_append(crc, &headers[CRC_OFFSET + 4..header_size]);
    // Headers for bytes beyond the record's length are not included.
    let used = body.len().div_ceil(BUFFER_SIZE).max(1);
    let further = headers.chunks_exact(BLOCK_SIZE).take(used).skip(1);
    let crc =
        further.fold(crc, |crc, header| crc32c::crc32c_append(crc, &header[..EXTENSION_SIZE]));
    crc32c::crc32c_append(crc, body)
}
