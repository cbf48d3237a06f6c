//! Device whose first bytes are written last.
//!
//! An existing file that is written in place has no temporary name. The superblock of both formats is in the first
//! bytes, so the file is not recognised as a file system until they are written.

use std::fs::File;
use std::io;
use std::sync::Arc;

use disk::{BlockDevice, FileAt};
use parking_lot::Mutex;

/// Number of bytes that are written last. The ext superblock is in the second KiB, that of XFS in the first sector.
const HEAD_BYTES: usize = 4096;

/// First bytes of an image while they are in memory only.
#[derive(Clone, Debug)]
pub(super) struct Head {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// Byte offset of the image in its file.
    offset: u64,
}

impl Head {
    /// Creates the head of an image at byte `offset` of its file.
    pub(super) fn new(offset: u64) -> Self {
        Self { bytes: Arc::new(Mutex::new(vec![0; HEAD_BYTES])), offset }
    }

    /// Writes the head after everything else is durable.
    pub(super) fn write(&self, file: &File) -> io::Result<()> {
        file.sync_data()?;
        file.write_all_at(&self.bytes.lock(), self.offset)?;
        file.sync_data()
    }
}

/// Device that keeps its first bytes in a [`Head`].
pub(super) struct HeadLast {
    inner: Arc<dyn BlockDevice>,
    head: Head,
}

impl HeadLast {
    pub(super) fn new(inner: Arc<dyn BlockDevice>, head: &Head) -> Self {
        Self { inner, head: head.clone() }
    }

    /// Returns the number of bytes of a range that are in the head.
    fn in_head(offset: u64, len: usize) -> usize {
        (HEAD_BYTES as u64).saturating_sub(offset).min(len as u64) as usize
    }
}

impl BlockDevice for HeadLast {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)?;
        let count = Self::in_head(offset, buf.len());
        if count > 0 {
            let at = offset as usize;
            buf[..count].copy_from_slice(&self.head.bytes.lock()[at..at + count]);
        }
        Ok(())
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        if offset < HEAD_BYTES as u64 { None } else { self.inner.in_file(offset, len) }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (head, rest) = data.split_at(Self::in_head(offset, data.len()));
        if !head.is_empty() {
            let at = offset as usize;
            self.head.bytes.lock()[at..at + head.len()].copy_from_slice(head);
        }
        if rest.is_empty() { Ok(()) } else { self.inner.write_at(offset + head.len() as u64, rest) }
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let count = Self::in_head(offset, usize::try_from(len).unwrap_or(usize::MAX));
        if count > 0 {
            let at = offset as usize;
            self.head.bytes.lock()[at..at + count].fill(0);
        }
        // Clear the old contents of the first bytes immediately.
        self.inner.zero_range(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let kept = Self::in_head(offset, usize::try_from(len).unwrap_or(usize::MAX)) as u64;
        if kept == len { Ok(()) } else { self.inner.discard(offset + kept, len - kept) }
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use disk::FileDevice;

    use super::*;

    #[test]
    fn the_first_bytes_are_in_the_file_only_at_the_end() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 8192], 0).unwrap();
        let head = Head::new(0);
        let inner = FileDevice::new(file.try_clone().unwrap()).unwrap();
        let device = HeadLast::new(Arc::new(inner), &head);
        device.zero_range(0, 8192).unwrap();
        device.write_at(4000, &[1; 200]).unwrap();
        let mut bytes = [9; 300];
        device.read_at(3950, &mut bytes).unwrap();
        assert_eq!((bytes[49], bytes[50], bytes[249], bytes[250]), (0, 1, 1, 0));
        let mut there = [9; 200];
        file.read_exact_at(&mut there, 4000).unwrap();
        assert_eq!((there[95], there[96]), (0, 1));
        assert!(device.in_file(4095, 10).is_none() && device.in_file(4096, 10).is_some());
        head.write(&file).unwrap();
        file.read_exact_at(&mut there, 4000).unwrap();
        assert_eq!(there, [1; 200]);
    }
}
