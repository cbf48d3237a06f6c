//! A copy-on-write device that keeps changes in memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{Arc, RwLock};

use crate::{BlockDevice, ContentKind, DeviceRole, check_range, end_at};

/// Unit of changes in bytes.
const PAGE_BYTES: u64 = 4096;

type Pages = HashMap<u64, Box<[u8; PAGE_BYTES as usize]>>;

/// A writable view of a device that does not change it, for example to examine an image after a replay of its journal.
/// Takes as much memory as is written to it.
pub struct OverlayDevice {
    below: Arc<dyn BlockDevice>,
    pages: RwLock<Pages>,
}

impl OverlayDevice {
    /// Creates a view of `below` without changes.
    pub fn new(below: Arc<dyn BlockDevice>) -> Self {
        Self { below, pages: RwLock::default() }
    }

    /// Calls `each` with every page that was written, in order: its offset, and its bytes, clipped to the device.
    ///
    /// # Errors
    /// Returns the errors of `each`.
    pub fn for_each_written(
        &self,
        mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let pages = self.pages.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut numbers: Vec<u64> = pages.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let start = number * PAGE_BYTES;
            let len = PAGE_BYTES.min(end_at(self, start).saturating_sub(start));
            if let Some(bytes) = pages.get(&number) {
                each(start, &bytes[..len as usize])?;
            }
        }
        Ok(())
    }

    /// Calls `each` with the pages that a range touches: page number, bytes within the page, bytes of the range.
    fn for_each_page(
        offset: u64,
        len: u64,
        mut each: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let within = at % PAGE_BYTES;
            let count = (PAGE_BYTES - within).min(len - done);
            let of_page = within as usize..(within + count) as usize;
            each(at / PAGE_BYTES, of_page, done as usize..(done + count) as usize)?;
            done += count;
        }
        Ok(())
    }

    /// Returns a page to change. Copies it from the device below if it was not written before.
    fn page<'p>(&self, pages: &'p mut Pages, page: u64) -> io::Result<&'p mut [u8]> {
        let bytes = match pages.entry(page) {
            Entry::Occupied(written) => written.into_mut(),
            Entry::Vacant(vacant) => {
                let mut bytes = Box::new([0; PAGE_BYTES as usize]);
                let start = page * PAGE_BYTES;
                let count = PAGE_BYTES.min(end_at(&*self.below, start) - start) as usize;
                self.below.read_at(start, &mut bytes[..count])?;
                vacant.insert(bytes)
            }
        };
        Ok(&mut bytes[..])
    }

    fn write_pages(&self) -> std::sync::RwLockWriteGuard<'_, Pages> {
        self.pages.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl BlockDevice for OverlayDevice {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.below.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buf)?;
        let pages = self.pages.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if pages.is_empty() {
            return Ok(());
        }
        Self::for_each_page(offset, buf.len() as u64, |page, of_page, of_range| {
            if let Some(bytes) = pages.get(&page) {
                buf[of_range].copy_from_slice(&bytes[of_page]);
            }
            Ok(())
        })
    }

    fn has_read_ahead(&self) -> bool {
        self.below.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.below.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(end_at(self, offset), offset, data.len() as u64)?;
        let mut pages = self.write_pages();
        Self::for_each_page(offset, data.len() as u64, |page, of_page, of_range| {
            self.page(&mut pages, page)?[of_page].copy_from_slice(&data[of_range]);
            Ok(())
        })
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(end_at(self, offset), offset, len)?;
        let mut pages = self.write_pages();
        Self::for_each_page(offset, len, |page, of_page, _| {
            self.page(&mut pages, page)?[of_page].fill(0);
            Ok(())
        })
    }

    /// Discards changes of the range. The device below does not change.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(end_at(self, offset), offset, len)?;
        let (first, end) = (offset.div_ceil(PAGE_BYTES), (offset + len) / PAGE_BYTES);
        self.write_pages().retain(|&page, _| page < first || page >= end);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn writes_are_seen_above_and_not_below() {
        let below = Arc::new(MemoryDevice::new(10_000));
        below.write_at(0, &[7; 10_000]).unwrap();
        let device = OverlayDevice::new(below.clone());
        device.write_at(4000, &[1; 200]).unwrap();
        device.zero_range(9000, 1000).unwrap();
        let mut all = [0; 10_000];
        device.read_at(0, &mut all).unwrap();
        let expected = |at: usize| match at {
            4000..4200 => 1,
            9000.. => 0,
            _ => 7,
        };
        assert!((0..10_000).all(|at| all[at] == expected(at)));
        below.read_at(0, &mut all).unwrap();
        assert!(all.iter().all(|&byte| byte == 7));
        assert!(device.write_at(9999, &[0; 2]).is_err());
        // Discarded pages show the device below again, which gets no discard.
        device.discard(0, 8192).unwrap();
        device.read_at(0, &mut all).unwrap();
        assert!(all[..8192].iter().all(|&byte| byte == 7) && all[9000..].iter().all(|&b| b == 0));
    }
}
