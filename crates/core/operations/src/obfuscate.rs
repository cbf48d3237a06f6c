//! Copies of metadata that are given to others: metadata without names, and random names and targets.

use std::fmt::Display;
use std::ops::ControlFlow;

use disk::{BlockDevice, is_zero};
use vfs::survey::{BlockUse, Extent, FileLayout, Sink};
use vfs::{Error, Result};

/// Number of bytes that are copied at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Copy of the metadata of an image, on a device of zeros.
pub struct MetadataCopy<'c> {
    from: &'c dyn BlockDevice,
    out: &'c dyn BlockDevice,
    remarks: Vec<String>,
    is_rehearsal: bool,
}

impl<'c> MetadataCopy<'c> {
    /// Creates a copy of `from` in `out`.
    pub fn new(from: &'c dyn BlockDevice, out: &'c dyn BlockDevice) -> Self {
        Self { from, out, remarks: Vec::new(), is_rehearsal: false }
    }

    /// Begins or ends a rehearsal, in which nothing is written and remarks are ignored.
    pub fn rehearse(&mut self, is_rehearsal: bool) {
        self.is_rehearsal = is_rehearsal;
    }

    /// Adds a remark about a part that could not be read and is missing.
    pub fn remark(&mut self, what: impl Display, error: &dyn Display) {
        if !self.is_rehearsal {
            self.remarks.push(format!("{what}: {error}"));
        }
    }

    /// Returns the remarks.
    #[must_use]
    pub fn into_remarks(self) -> Vec<String> {
        self.remarks
    }

    /// Reads bytes of the original.
    ///
    /// # Errors
    /// `Device` if the device fails.
    pub fn read(&self, at: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.from.read_at(at, &mut bytes).map_err(Error::Device)?;
        Ok(bytes)
    }

    /// Writes bytes. Zeros are there already.
    ///
    /// # Errors
    /// `Device` if the device fails.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        if self.is_rehearsal || is_zero(bytes) {
            return Ok(());
        }
        self.out.write_at(at, bytes).map_err(Error::Device)
    }

    /// Copies metadata without names, except for the first `skipped` bytes of the device. Blocks have `block_bytes` bytes.
    ///
    /// # Errors
    /// `Device` if the copy cannot be written.
    pub fn copy(&mut self, plain: PlainExtents, block_bytes: u64, skipped: u64) -> Result<()> {
        self.remarks.extend(plain.remarks);
        for (start, len) in plain.extents {
            let (mut at, end) = ((start * block_bytes).max(skipped), (start + len) * block_bytes);
            while at < end {
                let part = COPY_BYTES.min(end - at);
                match self.read(at, part as usize) {
                    Ok(bytes) => self.write(at, &bytes)?,
                    Err(error) => self.remark(format_args!("bytes {at}+{part}"), &error),
                }
                at += part;
            }
        }
        Ok(())
    }
}

/// Receiver of the layout that keeps the extents of metadata without names.
#[derive(Debug, Default)]
pub struct PlainExtents {
    extents: Vec<(u64, u64)>,
    remarks: Vec<String>,
}

impl Sink for PlainExtents {
    fn extent(&mut self, Extent { start, len, kind }: Extent) {
        use BlockUse::{Allocation, Headers, Maps, System};
        if matches!(kind, Headers | Allocation | Maps | System) {
            match self.extents.last_mut() {
                Some((last, count)) if *last + *count == start => *count += len,
                _ => self.extents.push((start, len)),
            }
        }
    }

    fn file(&mut self, _file: FileLayout) {}

    fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    fn progress(&mut self, _done: u64, _total: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Bytes of random names.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Source of random bytes. They cannot be repeated without the key.
#[derive(Clone, Debug)]
pub struct RandomNames(u64);

impl RandomNames {
    /// Creates a source from a key.
    #[must_use]
    pub fn new(key: u64) -> Self {
        Self(key)
    }

    /// Returns the next random number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Fills `bytes` with letters and digits.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(12) {
            let mut number = self.number();
            for byte in part {
                *byte = LETTERS[(number % 32) as usize];
                number /= 32;
            }
        }
    }

    /// Returns a name of `len` letters and digits.
    pub fn name(&mut self, len: usize) -> Vec<u8> {
        let mut name = vec![0; len];
        self.fill(&mut name);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_length_and_differ() {
        let mut names = RandomNames::new(7);
        let (one, other) = (names.name(40), names.name(40));
        assert!(one.len() == 40 && one != other && one.iter().all(u8::is_ascii_alphanumeric));
        assert_eq!(RandomNames::new(7).name(40), one);
        assert_ne!(RandomNames::new(8).name(40), one);
    }
}
