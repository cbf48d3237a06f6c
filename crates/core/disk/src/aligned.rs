//! Requests of whole sectors to a device that refuses all others.

use std::io;
use std::ops::Range;

use parking_lot::Mutex;

use crate::{BlockDevice, ContentKind, check_range};

/// Device that splits requests, so that another one gets whole sectors only.
///
/// The disks of macOS (`/dev/rdisk4`) and Windows (`\\.\PhysicalDrive2`) refuse requests that start or end inside a
/// sector. Requests of whole sectors pass without a copy. The sectors at the edges of other requests are read into
/// memory, and written back as a whole.
pub struct AlignedDevice<D> {
    inner: D,
    sector_bytes: u64,
    len: u64,
    /// Callers serialise overlapping writes. Two writes to different parts of one sector must be serialised here.
    edges: Mutex<()>,
}

/// Parts of a request.
struct Parts {
    /// Part of the first sector.
    head: Range<u64>,
    /// Whole sectors.
    middle: Range<u64>,
    /// Part of the last sector, if it is another one than that of `head`.
    tail: Range<u64>,
}

impl<D: BlockDevice> AlignedDevice<D> {
    /// Creates a device with sectors of `sector_bytes`. An incomplete sector at the end is not accessible.
    ///
    /// # Errors
    /// If `sector_bytes` is not a power of two.
    pub fn new(inner: D, sector_bytes: u32) -> io::Result<Self> {
        if !sector_bytes.is_power_of_two() {
            let problem = format!("a sector size of {sector_bytes} bytes; expected a power of two");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let sector_bytes = u64::from(sector_bytes);
        let len = inner.len() / sector_bytes * sector_bytes;
        Ok(Self { inner, sector_bytes, len, edges: Mutex::new(()) })
    }

    /// Splits a request into whole sectors and the edges around them.
    fn split(&self, offset: u64, len: u64) -> io::Result<Parts> {
        check_range(self.len, offset, len)?;
        let end = offset + len;
        let first = offset.next_multiple_of(self.sector_bytes).min(end);
        let last = (end / self.sector_bytes * self.sector_bytes).max(first);
        Ok(Parts { head: offset..first, middle: first..last, tail: last..end })
    }

    /// Reads the sector that contains a part of it. Returns its offset, its bytes, and the part within them.
    fn sector(&self, part: &Range<u64>) -> io::Result<(u64, Vec<u8>, Range<usize>)> {
        let start = part.start / self.sector_bytes * self.sector_bytes;
        let mut bytes = vec![0; self.sector_bytes as usize];
        self.inner.read_at(start, &mut bytes)?;
        Ok((start, bytes, (part.start - start) as usize..(part.end - start) as usize))
    }

    fn read_edge(&self, part: &Range<u64>, buf: &mut [u8]) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let (_, bytes, inside) = self.sector(part)?;
        buf.copy_from_slice(&bytes[inside]);
        Ok(())
    }

    /// Changes a part of a sector and writes the sector.
    fn change_edge(&self, part: &Range<u64>, change: impl FnOnce(&mut [u8])) -> io::Result<()> {
        if part.is_empty() {
            return Ok(());
        }
        let _one = self.edges.lock();
        let (start, mut bytes, inside) = self.sector(part)?;
        change(&mut bytes[inside]);
        self.inner.write_at(start, &bytes)
    }
}

impl<D: BlockDevice> BlockDevice for AlignedDevice<D> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let Parts { head, middle, tail } = self.split(offset, buf.len() as u64)?;
        let (first, rest) = buf.split_at_mut((head.end - head.start) as usize);
        let (whole, last) = rest.split_at_mut((middle.end - middle.start) as usize);
        self.read_edge(&head, first)?;
        if !whole.is_empty() {
            self.inner.read_at(middle.start, whole)?;
        }
        self.read_edge(&tail, last)
    }

    fn known_unreadable(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        self.inner.known_unreadable(offset, len)
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        self.inner.known_zeros(offset, len)
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.inner.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let Parts { head, middle, tail } = self.split(offset, data.len() as u64)?;
        let (first, rest) = data.split_at((head.end - head.start) as usize);
        let (whole, last) = rest.split_at((middle.end - middle.start) as usize);
        self.change_edge(&head, |bytes| bytes.copy_from_slice(first))?;
        if !whole.is_empty() {
            self.inner.write_at(middle.start, whole)?;
        }
        self.change_edge(&tail, |bytes| bytes.copy_from_slice(last))
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let Parts { head, middle, tail } = self.split(offset, len)?;
        self.change_edge(&head, |bytes| bytes.fill(0))?;
        if !middle.is_empty() {
            self.inner.zero_range(middle.start, middle.end - middle.start)?;
        }
        self.change_edge(&tail, |bytes| bytes.fill(0))
    }

    /// Frees the whole sectors of the range.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let Parts { middle, .. } = self.split(offset, len)?;
        self.inner.discard(middle.start, middle.end - middle.start)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn has_long_flushes(&self) -> bool {
        self.inner.has_long_flushes()
    }

    fn barrier(&self) -> io::Result<()> {
        self.inner.barrier()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::MemoryDevice;

    /// Device that refuses the requests that raw devices refuse.
    struct RawDevice {
        inner: MemoryDevice,
        sector_bytes: u64,
        requests: AtomicU64,
    }

    impl RawDevice {
        fn new(len: u64, sector_bytes: u64) -> Self {
            Self { inner: MemoryDevice::new(len), sector_bytes, requests: AtomicU64::new(0) }
        }

        fn check(&self, offset: u64, len: u64) -> io::Result<()> {
            self.requests.fetch_add(1, Ordering::Relaxed);
            let is_whole = offset.is_multiple_of(self.sector_bytes)
                && len.is_multiple_of(self.sector_bytes)
                && len > 0;
            // A raw device has no bytes after its last whole sector.
            let end = self.inner.len() / self.sector_bytes * self.sector_bytes;
            if is_whole && offset + len <= end {
                return Ok(());
            }
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{offset}+{len}")))
        }
    }

    impl BlockDevice for RawDevice {
        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.check(offset, buf.len() as u64)?;
            self.inner.read_at(offset, buf)
        }

        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            self.check(offset, data.len() as u64)?;
            self.inner.write_at(offset, data)
        }

        fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
            self.check(offset, len)?;
            self.inner.zero_range(offset, len)
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    fn aligned(len: u64, sector_bytes: u32) -> AlignedDevice<RawDevice> {
        AlignedDevice::new(RawDevice::new(len, sector_bytes.into()), sector_bytes).unwrap()
    }

    #[test]
    fn random_requests_behave_as_on_a_device_without_sectors() {
        for (seed, sector_bytes) in [(1, 512), (2, 4096), (3, 512), (4, 4096)] {
            let device = aligned(64 << 10, sector_bytes);
            let mut model = vec![0; 64 << 10];
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..2000 {
                let start = random.usize(..model.len());
                let longest = if random.bool() { 700 } else { model.len() };
                let end = (start + random.usize(..longest)).min(model.len());
                match random.u8(..3) {
                    0 => {
                        let data: Vec<u8> = (start..end).map(|_| random.u8(..)).collect();
                        device.write_at(start as u64, &data).unwrap();
                        model[start..end].copy_from_slice(&data);
                    }
                    1 => {
                        device.zero_range(start as u64, (end - start) as u64).unwrap();
                        model[start..end].fill(0);
                    }
                    _ => {
                        let mut found = vec![1; end - start];
                        device.read_at(start as u64, &mut found).unwrap();
                        assert!(found == model[start..end], "seed {seed}, bytes {start}..{end}");
                    }
                }
            }
            let mut all = vec![1; model.len()];
            device.read_at(0, &mut all).unwrap();
            assert!(all == model, "seed {seed}");
        }
    }

    #[test]
    fn whole_sectors_are_one_request_and_edges_are_two() {
        let device = aligned(64 << 10, 4096);
        let requests = |act: &dyn Fn()| {
            let before = device.inner.requests.load(Ordering::Relaxed);
            act();
            device.inner.requests.load(Ordering::Relaxed) - before
        };
        assert_eq!(requests(&|| device.write_at(4096, &[7; 8192]).unwrap()), 1);
        assert_eq!(requests(&|| device.read_at(0, &mut [0; 16384]).unwrap()), 1);
        // A part inside one sector is read and written once.
        assert_eq!(requests(&|| device.write_at(5000, &[8; 100]).unwrap()), 2);
        assert_eq!(requests(&|| device.write_at(5000, &[8; 8192]).unwrap()), 5);
        assert_eq!(requests(&|| device.read_at(5000, &mut []).unwrap()), 0);
    }

    #[test]
    fn requests_past_the_end_and_other_sector_sizes_are_errors() {
        // The last 100 bytes are not a whole sector.
        let device = aligned(8192 + 100, 512);
        assert_eq!(device.len(), 8192);
        device.write_at(8191, &[1]).unwrap();
        for (offset, len) in [(8192, 1), (8000, 193), (u64::MAX, 1), (8192, 100)] {
            assert!(device.write_at(offset, &vec![1; len]).is_err(), "{offset}+{len}");
            assert!(device.read_at(offset, &mut vec![1; len]).is_err(), "{offset}+{len}");
            assert!(device.zero_range(offset, len as u64).is_err(), "{offset}+{len}");
        }
        device.read_at(8192, &mut []).unwrap();
        for wrong in [0, 511, 520] {
            assert!(AlignedDevice::new(MemoryDevice::new(8192), wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn threads_that_write_parts_of_one_sector_lose_nothing() {
        let device = Arc::new(aligned(4096, 4096));
        std::thread::scope(|scope| {
            for part in 0..8_u64 {
                let device = Arc::clone(&device);
                scope.spawn(move || {
                    for round in 1..=50 {
                        device.write_at(part * 512, &[round; 512]).unwrap();
                    }
                });
            }
        });
        let mut found = [0; 4096];
        device.read_at(0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 50));
    }
}
