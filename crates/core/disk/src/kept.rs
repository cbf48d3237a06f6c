//! A device that caches reads of one range.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{BlockDevice, ContentKind, DeviceRole};

/// Unit of the kept bytes.
const PAGE_BYTES: u64 = 4096;

type Pages = BTreeMap<u64, Box<[u8]>>;

/// A device that reads each page of one range at most once, for example of a log that several readers examine. Writes
/// go to the device, and the pages that they touch are read again.
pub struct KeptDevice {
    below: Arc<dyn BlockDevice>,
    /// Whole pages of the range, by number.
    range: Range<u64>,
    pages_max: usize,
    /// INVARIANT: locked during each read and write within the range, so that a page never misses a write.
    kept: Mutex<Pages>,
}

impl KeptDevice {
    /// Keeps at most `bytes_max` bytes of the whole pages of 4 KiB in `range`.
    pub fn new(below: Arc<dyn BlockDevice>, range: Range<u64>, bytes_max: u64) -> Self {
        let range = range.start.div_ceil(PAGE_BYTES)..range.end / PAGE_BYTES;
        let pages_max = usize::try_from(bytes_max / PAGE_BYTES).unwrap_or(usize::MAX);
        Self { below, range, pages_max, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Pages> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pages that contain these bytes.
    fn pages(offset: u64, len: u64) -> Range<u64> {
        offset / PAGE_BYTES..offset.saturating_add(len).div_ceil(PAGE_BYTES)
    }

    /// Makes a change of the device, and forgets the pages that contain these bytes.
    fn change(
        &self,
        (offset, len): (u64, u64),
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let pages = Self::pages(offset, len);
        if pages.end <= self.range.start || self.range.end <= pages.start {
            return change();
        }
        let mut kept = self.kept();
        kept.retain(|number, _| !pages.contains(number));
        change()
    }
}

/// Copies the bytes from `offset` on out of pages. Returns false if a page is missing.
fn copy(kept: &Pages, pages: Range<u64>, offset: u64, buf: &mut [u8]) -> bool {
    let end = offset + buf.len() as u64;
    pages.into_iter().all(|number| {
        let Some(page) = kept.get(&number) else { return false };
        let start = number * PAGE_BYTES;
        let (from, to) = (offset.max(start), end.min(start + PAGE_BYTES));
        buf[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&page[(from - start) as usize..(to - start) as usize]);
        true
    })
}

impl BlockDevice for KeptDevice {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.below.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let pages = Self::pages(offset, buf.len() as u64);
        if buf.is_empty() || pages.start < self.range.start || self.range.end < pages.end {
            return self.below.read_at(offset, buf);
        }
        let mut kept = self.kept();
        if copy(&kept, pages.clone(), offset, buf) {
            return Ok(());
        }
        let count = (pages.end - pages.start) as usize;
        if kept.len() + count > self.pages_max {
            return self.below.read_at(offset, buf);
        }
        let mut bytes = vec![0; count * PAGE_BYTES as usize];
        if self.below.read_at(pages.start * PAGE_BYTES, &mut bytes).is_err() {
            // The bytes themselves may be readable.
            return self.below.read_at(offset, buf);
        }
        let read = bytes.chunks_exact(PAGE_BYTES as usize).map(Box::from);
        kept.extend(pages.clone().zip(read));
        copy(&kept, pages, offset, buf);
        Ok(())
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        self.below.in_file(offset, len)
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        self.below.known_zeros(offset, len)
    }

    fn has_read_ahead(&self) -> bool {
        self.below.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.below.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change((offset, data.len() as u64), || self.below.write_at(offset, data))
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change((offset, len), || self.below.zero_range(offset, len))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change((offset, len), || self.below.discard(offset, len))
    }

    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        let _ = self.change((offset, len), || {
            self.below.drop_cache(offset, len);
            Ok(())
        });
    }

    fn has_long_flushes(&self) -> bool {
        self.below.has_long_flushes()
    }

    fn barrier(&self) -> io::Result<()> {
        self.below.barrier()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Fault, FaultyDevice, MemoryDevice};

    #[test]
    fn kept_pages_are_read_once_and_again_after_a_write() {
        let memory = Arc::new(MemoryDevice::new(100_000));
        memory.write_at(0, &[7; 100_000]).unwrap();
        let counted = Arc::new(FaultyDevice::new(memory));
        let device = KeptDevice::new(counted.clone(), 5000..50_000, 20_000);
        counted.set(Access::Read, Fault::Never);
        let read = |offset: u64, len: usize| {
            let mut bytes = vec![0; len];
            device.read_at(offset, &mut bytes).unwrap();
            bytes
        };
        // The first whole page starts at byte 8192.
        for _ in 0..3 {
            assert_eq!(read(8200, 8), [7; 8]);
            assert_eq!(read(8192, 8192), [7; 8192]);
        }
        assert_eq!(counted.count(Access::Read), 2);
        device.write_at(12_287, &[1; 2]).unwrap();
        assert_eq!(read(12_286, 4), [7, 1, 1, 7]);
        assert_eq!(read(12_286, 4), [7, 1, 1, 7]);
        assert_eq!(counted.count(Access::Read), 3);
        // Outside of the range, and beyond the limit.
        for _ in 0..2 {
            read(5000, 100);
            read(20_480, 20_480);
        }
        assert_eq!(counted.count(Access::Read), 7);
    }

    #[test]
    fn unreadable_pages_do_not_hide_readable_bytes() {
        let counted = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(100_000))));
        let device = KeptDevice::new(counted.clone(), 0..100_000, 20_000);
        counted.set(Access::Read, Fault::Nth(1));
        device.read_at(4100, &mut [0; 8]).expect("the second read succeeds");
    }
}
