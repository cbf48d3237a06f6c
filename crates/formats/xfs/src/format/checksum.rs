//! The checksum of version 5 metadata: CRC-32C over the whole structure, with the checksum field as zeros, stored in
//! little-endian order, unlike everything else.

use std::array;

use engine::Corruption;

/// Returns the checksum of `data`, whose checksum field is at `at`.
///
/// # Panics
/// If `data` ends before the field does.
pub(crate) fn compute(data: &[u8], at: usize) -> u32 {
    // The whole words around the field are processed separately, because CRC-32C of the rest is faster from an aligned
    // offset.
    let start = at & !7;
    let end = data.len().min((at + 4).next_multiple_of(8));
    let mut word = [0; 16];
    let word = &mut word[..end - start];
    word.copy_from_slice(&data[start..end]);
    word[at - start..at - start + 4].fill(0);
    let crc = crc32c::crc32c(&data[..start]);
    let crc = crc32c::crc32c_append(crc, word);
    crc32c::crc32c_append(crc, &data[end..])
}

/// Returns the stored checksum at `at`.
fn stored(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

/// Updates the checksum field at `at`.
pub fn seal(data: &mut [u8], at: usize) {
    let crc = compute(data, at);
    data[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Checks the checksum field at `at` of `structure`.
pub fn check(structure: &'static str, data: &[u8], at: usize) -> Result<(), Corruption> {
    let (computed, stored) = (compute(data, at), stored(data, at));
    if computed == stored { Ok(()) } else { Err(Corruption::checksum(structure, computed, stored)) }
}

/// Extends checksums by a run of zeros. CRC is linear, so four table look-ups replace processing the run.
pub(crate) struct Zeros {
    /// The result for the checksum 0.
    base: u32,
    /// The contribution of each byte of a checksum, by its position and value.
    added: [[u32; 256]; 4],
}

impl Zeros {
    /// Returns the tables for runs of `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        let zeros = vec![0; len];
        let after = |crc| crc32c::crc32c_append(crc, &zeros);
        let base = after(0);
        let added =
            array::from_fn(|place| array::from_fn(|b| after((b as u32) << (8 * place)) ^ base));
        Self { base, added }
    }

    /// Returns the checksum of data with checksum `crc` followed by the run.
    pub(crate) fn append(&self, crc: u32) -> u32 {
        let bytes = crc.to_le_bytes().into_iter().zip(&self.added);
        bytes.fold(self.base, |crc, (byte, added)| crc ^ added[usize::from(byte)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_field_counts_as_zeros_at_any_offset() {
        let mut random = fastrand::Rng::with_seed(4);
        for len in 4..80 {
            let data: Vec<u8> = (0..len).map(|_| random.u8(..)).collect();
            for at in 0..=len - 4 {
                let mut zeroed = data.clone();
                zeroed[at..at + 4].fill(0);
                assert_eq!(compute(&data, at), crc32c::crc32c(&zeroed));
            }
        }
    }

    #[test]
    fn a_run_of_zeros_is_looked_up() {
        let mut random = fastrand::Rng::with_seed(3);
        for len in [1, 336, 848, 1872] {
            let zeros = Zeros::new(len);
            for crc in [0, u32::MAX, random.u32(..), random.u32(..)] {
                assert_eq!(zeros.append(crc), crc32c::crc32c_append(crc, &vec![0; len]));
            }
        }
    }
}
