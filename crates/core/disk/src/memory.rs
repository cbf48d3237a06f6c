//! A sparse device in memory.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::{BlockDevice, check_range};

/// Unit of allocation in bytes.
const CHUNK_BYTES: usize = 64 << 10;

static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// A sparse image in memory. Chunks that were never written take no space and read as zeros.
pub struct MemoryDevice {
    /// Shared with forks until one of them changes the chunk.
    chunks: Vec<RwLock<Option<Arc<[u8]>>>>,
    len: u64,
}

impl MemoryDevice {
    /// Creates a device of `len` zero bytes.
    pub fn new(len: u64) -> Self {
        let count = len.div_ceil(CHUNK_BYTES as u64) as usize;
        Self { chunks: (0..count).map(|_| RwLock::new(None)).collect(), len }
    }

    /// Creates a device with the contents `bytes`. Chunks of zeros take no space.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let device = Self::new(bytes.len() as u64);
        for (chunk, part) in device.chunks.iter().zip(bytes.chunks(CHUNK_BYTES)) {
            if *part == ZEROS[..part.len()] {
                continue;
            }
            let mut contents = vec![0; CHUNK_BYTES];
            contents[..part.len()].copy_from_slice(part);
            *chunk.write() = Some(contents.into());
        }
        device
    }

    /// Returns an independent copy of the device. Unchanged chunks share their memory. A concurrent write may or may
    /// not be part of the copy.
    pub fn fork(&self) -> Self {
        let chunks = self.chunks.iter().map(|chunk| RwLock::new(chunk.read().clone()));
        Self { chunks: chunks.collect(), len: self.len }
    }

    /// Calls `each` with every allocated part in order: its offset and its bytes, clipped to the device's end. All
    /// other bytes are zeros.
    pub fn for_each_part(
        &self,
        mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for (number, chunk) in self.chunks.iter().enumerate() {
            if let Some(bytes) = &*chunk.read() {
                let offset = number as u64 * CHUNK_BYTES as u64;
                let len = (self.len - offset).min(CHUNK_BYTES as u64);
                each(offset, &bytes[..len as usize])?;
            }
        }
        Ok(())
    }

    /// Calls `each` with every part whose memory is not shared with `other`, which has the same length: its offset, and
    /// its bytes in this device, which may be zeros. All other parts are equal.
    pub fn for_each_part_unlike(
        &self,
        other: &Self,
        mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        for (number, (one, other)) in self.chunks.iter().zip(&other.chunks).enumerate() {
            let one = one.read().clone();
            if one.as_ref().map(Arc::as_ptr) == other.read().as_ref().map(Arc::as_ptr) {
                continue;
            }
            let offset = number as u64 * CHUNK_BYTES as u64;
            let len = (self.len - offset).min(CHUNK_BYTES as u64);
            each(offset, &one.as_deref().unwrap_or(&ZEROS)[..len as usize])?;
        }
        Ok(())
    }

    /// Splits a byte range at chunk boundaries into chunk number, offset in the chunk, and part of the range.
    fn pieces(
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let at = offset + done as u64;
            let within = (at % CHUNK_BYTES as u64) as usize;
            let n = (CHUNK_BYTES - within).min(len - done);
            let piece = ((at / CHUNK_BYTES as u64) as usize, within, done..done + n);
            done += n;
            (n > 0).then_some(piece)
        })
    }
}

impl BlockDevice for MemoryDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.len, offset, buf.len() as u64)?;
        for (chunk, within, part) in Self::pieces(offset, buf.len()) {
            let part = &mut buf[part];
            match &*self.chunks[chunk].read() {
                Some(bytes) => part.copy_from_slice(&bytes[within..within + part.len()]),
                None => part.fill(0),
            }
        }
        Ok(())
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        check_range(self.len, offset, len).ok()?;
        let end = offset + len;
        let chunks = offset / CHUNK_BYTES as u64..end.div_ceil(CHUNK_BYTES as u64);
        let is_unused = |number: &u64| self.chunks[*number as usize].read().is_none();
        let first = chunks.clone().find(is_unused)?;
        let last = (first..chunks.end).take_while(is_unused).last()?;
        let bytes = |number: u64| number * CHUNK_BYTES as u64;
        Some(bytes(first).max(offset)..bytes(last + 1).min(end))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.len, offset, data.len() as u64)?;
        for (chunk, within, part) in Self::pieces(offset, data.len()) {
            let part = &data[part];
            let mut chunk = self.chunks[chunk].write();
            if chunk.is_none() && part.len() == CHUNK_BYTES {
                *chunk = Some(part.into());
                continue;
            }
            let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK_BYTES].into());
            Arc::make_mut(bytes)[within..within + part.len()].copy_from_slice(part);
        }
        Ok(())
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.len, offset, len)?;
        for (chunk, within, part) in Self::pieces(offset, len as usize) {
            let mut chunk = self.chunks[chunk].write();
            if part.len() == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(bytes) = chunk.as_mut() {
                Arc::make_mut(bytes)[within..within + part.len()].fill(0);
            }
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_cross_chunks_read_back() {
        let device = MemoryDevice::new(3 * CHUNK_BYTES as u64);
        let data: Vec<u8> = (0..CHUNK_BYTES + 10).map(|i| i as u8).collect();
        let offset = CHUNK_BYTES as u64 - 5;
        device.write_at(offset, &data).unwrap();
        let mut back = vec![0; data.len()];
        device.read_at(offset, &mut back).unwrap();
        assert_eq!(back, data);
        device.zero_range(CHUNK_BYTES as u64, CHUNK_BYTES as u64).unwrap();
        device.read_at(offset, &mut back).unwrap();
        assert_eq!(back[..5], data[..5]);
        assert!(back[5..CHUNK_BYTES + 5].iter().all(|&b| b == 0));
        assert_eq!(back[CHUNK_BYTES + 5..], data[CHUNK_BYTES + 5..]);
    }

    #[test]
    fn forks_do_not_see_each_other() {
        let device = MemoryDevice::new(2 * CHUNK_BYTES as u64 + 100);
        device.write_at(0, &[1; 100]).unwrap();
        device.write_at(2 * CHUNK_BYTES as u64, &[5; 100]).unwrap();
        let fork = device.fork();
        device.write_at(50, &[2; 100]).unwrap();
        fork.zero_range(0, 10).unwrap();
        let mut buf = [9; 60];
        device.read_at(0, &mut buf).unwrap();
        assert!(buf[..50] == [1; 50] && buf[50..] == [2; 10]);
        fork.read_at(0, &mut buf).unwrap();
        assert!(buf[..10] == [0; 10] && buf[10..] == [1; 50]);
        let mut parts = Vec::new();
        let each = |offset, bytes: &[u8]| {
            parts.push((offset, bytes.len()));
            Ok(())
        };
        fork.for_each_part(each).unwrap();
        assert_eq!(parts, [(0, CHUNK_BYTES), (2 * CHUNK_BYTES as u64, 100)]);
    }

    #[test]
    fn parts_of_forks_are_alike_until_one_changes() {
        let device = MemoryDevice::new(3 * CHUNK_BYTES as u64 + 100);
        device.write_at(0, &[1; 3 * CHUNK_BYTES]).unwrap();
        let fork = device.fork();
        let unlike = |one: &MemoryDevice, other: &MemoryDevice| {
            let mut parts = Vec::new();
            one.for_each_part_unlike(other, |offset, bytes| {
                parts.push((offset / CHUNK_BYTES as u64, bytes[0], bytes.len()));
                Ok(())
            })
            .unwrap();
            parts
        };
        assert_eq!(unlike(&device, &fork), []);
        fork.zero_range(0, CHUNK_BYTES as u64).unwrap();
        fork.write_at(CHUNK_BYTES as u64, &[2]).unwrap();
        device.write_at(3 * CHUNK_BYTES as u64, &[3]).unwrap();
        assert_eq!(unlike(&fork, &device), [(0, 0, CHUNK_BYTES), (1, 2, CHUNK_BYTES), (3, 0, 100)]);
        assert_eq!(unlike(&device, &fork), [(0, 1, CHUNK_BYTES), (1, 1, CHUNK_BYTES), (3, 3, 100)]);
    }

    #[test]
    fn zeros_take_no_space() {
        let mut bytes = vec![0; 2 * CHUNK_BYTES + 10];
        bytes[CHUNK_BYTES] = 1;
        let device = MemoryDevice::from_bytes(&bytes);
        let mut offsets = Vec::new();
        let each = |offset, _: &[u8]| {
            offsets.push(offset);
            Ok(())
        };
        device.for_each_part(each).unwrap();
        assert_eq!(offsets, [CHUNK_BYTES as u64]);
        let mut back = vec![9; bytes.len()];
        device.read_at(0, &mut back).unwrap();
        assert!(back == bytes);
    }

    #[test]
    fn nothing_lies_past_the_end() {
        let device = MemoryDevice::from_bytes(&[1, 2, 3]);
        let mut buf = [0; 3];
        device.read_at(0, &mut buf).unwrap();
        assert_eq!(buf, [1, 2, 3]);
        assert!(device.read_at(1, &mut buf).is_err());
        assert!(device.write_at(3, &[0]).is_err());
    }
}
