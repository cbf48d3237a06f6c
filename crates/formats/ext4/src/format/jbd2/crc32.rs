//! Checksum of journals with `COMPAT_CHECKSUM`: CRC-32, most significant bit first.

/// Table for CRC-32 per byte: polynomial 0x04c11db7, not reflected.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 { (crc << 1) ^ 0x04c1_1db7 } else { crc << 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Continues a CRC-32 register over `bytes`, without inversions.
#[must_use]
pub(crate) fn crc32_be(register: u32, bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(register, |crc, &byte| (crc << 8) ^ TABLE[usize::from((crc >> 24) as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_value_of_the_catalogue() {
        // CRC-32/MPEG-2: the same polynomial and start value, no inversion at the end.
        assert_eq!(crc32_be(u32::MAX, b"123456789"), 0x0376_e6e7);
        assert_eq!(crc32_be(crc32_be(u32::MAX, b"1234"), b"56789"), 0x0376_e6e7);
    }
}
