//! Changes made by the replay, kept in memory until all of it has succeeded.

use std::collections::BTreeMap;

use disk::BlockDevice;
use vfs::{Error, Result};

/// Unit in which changes are kept, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Unit in which they are written, in bytes: the smallest unit of any on-disk structure.
const SECTOR_BYTES: u64 = 512;

struct Page {
    bytes: Box<[u8; PAGE_BYTES as usize]>,
    /// One bit for each sector that was written.
    changed: u8,
}

/// A device with changes that are not written yet.
pub(super) struct Changes<'d> {
    device: &'d dyn BlockDevice,
    pages: BTreeMap<u64, Page>,
}

/// Splits a range into pages: page number, bytes within the page, bytes of the range.
fn parts(
    offset: u64,
    len: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let (first, end) = (offset / PAGE_BYTES, offset + len as u64);
    (first..end.div_ceil(PAGE_BYTES)).map(move |page| {
        let start = page * PAGE_BYTES;
        let (from, to) = (offset.max(start), end.min(start + PAGE_BYTES));
        let within = (from - start) as usize..(to - start) as usize;
        (page, within, (from - offset) as usize..(to - offset) as usize)
    })
}

impl<'d> Changes<'d> {
    pub(super) const fn new(device: &'d dyn BlockDevice) -> Self {
        Self { device, pages: BTreeMap::new() }
    }

    /// Reads a range including changes. The range must be on the device, as for all functions that follow.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.device.read_at(offset, &mut bytes).map_err(Error::Device)?;
        for (page, within, of_range) in parts(offset, len) {
            if let Some(page) = self.pages.get(&page) {
                bytes[of_range].copy_from_slice(&page.bytes[within]);
            }
        }
        Ok(bytes)
    }

    /// Returns whether a range equals its contents on the device.
    pub(super) fn leave(&self, offset: u64, len: usize) -> Result<bool> {
        let mut bytes = vec![0; len];
        self.device.read_at(offset, &mut bytes).map_err(Error::Device)?;
        Ok(bytes == self.read(offset, len)?)
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        for (number, within, of_range) in parts(offset, bytes.len()) {
            if !self.pages.contains_key(&number) {
                let page = Page { bytes: self.load(number)?, changed: 0 };
                self.pages.insert(number, page);
            }
            if let Some(page) = self.pages.get_mut(&number) {
                page.bytes[within.clone()].copy_from_slice(&bytes[of_range]);
                let sectors = within.start / SECTOR_BYTES as usize
                    ..within.end.div_ceil(SECTOR_BYTES as usize);
                sectors.for_each(|sector| page.changed |= 1 << sector);
            }
        }
        Ok(())
    }

    fn load(&self, page: u64) -> Result<Box<[u8; PAGE_BYTES as usize]>> {
        let mut bytes = Box::new([0; PAGE_BYTES as usize]);
        let start = page * PAGE_BYTES;
        let count = PAGE_BYTES.min(self.device.len() - start) as usize;
        self.device.read_at(start, &mut bytes[..count]).map_err(Error::Device)?;
        Ok(bytes)
    }

    /// Writes all changes to the device.
    pub(super) fn write_back(&self) -> Result<()> {
        for (number, page) in &self.pages {
            let mut sector = 0;
            while page.changed >> sector != 0 {
                let skipped = (page.changed >> sector).trailing_zeros();
                let count = (page.changed >> (sector + skipped)).trailing_ones();
                let start = u64::from(sector + skipped) * SECTOR_BYTES;
                let end = start + u64::from(count) * SECTOR_BYTES;
                let bytes = &page.bytes[start as usize..end as usize];
                let offset = number * PAGE_BYTES + start;
                self.device.write_at(offset, bytes).map_err(Error::Device)?;
                sector += skipped + count;
                if sector >= u8::BITS {
                    break;
                }
            }
        }
        self.device.flush().map_err(Error::Device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::MemoryDevice;

    #[test]
    fn only_sectors_that_changed_are_written() {
        let device = MemoryDevice::new(10_240);
        device.write_at(0, &[7; 10_240]).unwrap();
        let mut changes = Changes::new(&device);
        changes.write(4000, &[1; 200]).unwrap();
        changes.write(9728, &[2; 512]).unwrap();
        assert_eq!(changes.read(4096, 200).unwrap()[103..105], [1, 7]);
        let before = device.fork();
        // Unchanged sectors keep what others write in the meantime.
        device.write_at(5000, &[9; 100]).unwrap();
        changes.write_back().unwrap();
        let read = |device: &MemoryDevice| {
            let mut all = vec![0; 10_240];
            device.read_at(0, &mut all).unwrap();
            all
        };
        let (all, before) = (read(&device), read(&before));
        assert!(all[4000..4200].iter().all(|byte| *byte == 1));
        assert!(all[5000..5100].iter().all(|byte| *byte == 9));
        assert!(all[9728..].iter().all(|byte| *byte == 2));
        assert!(all[..4000] == before[..4000] && all[5632..9728] == before[5632..9728]);
    }
}
