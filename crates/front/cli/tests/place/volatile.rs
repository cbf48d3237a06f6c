//! A disk with a cache that is lost with the power.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use disk::BlockDevice;

/// Unit of data that is lost or kept, in bytes.
const SECTOR_BYTES: u64 = 512;

/// Keeps writes in this process's memory until they are flushed: killing the process cuts the
/// disk's power. An interrupted flush has written some sectors, in arbitrary order.
pub(super) struct VolatileDevice {
    below: Arc<dyn BlockDevice>,
    sectors: Mutex<BTreeMap<u64, [u8; SECTOR_BYTES as usize]>>,
}

impl VolatileDevice {
    pub(super) fn new(below: Arc<dyn BlockDevice>) -> Self {
        Self { below, sectors: Mutex::default() }
    }
}

impl BlockDevice for VolatileDevice {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let sectors = self.sectors.lock().unwrap();
        self.below.read_at(offset, buf)?;
        let end = offset + buf.len() as u64;
        let first = offset / SECTOR_BYTES;
        for (&sector, bytes) in sectors.range(first..end.div_ceil(SECTOR_BYTES)) {
            let start = sector * SECTOR_BYTES;
            let (from, to) = (start.max(offset), (start + SECTOR_BYTES).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset + data.len() as u64 > self.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut sectors = self.sectors.lock().unwrap();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (sector, within) = (at / SECTOR_BYTES, (at % SECTOR_BYTES) as usize);
            let count = (SECTOR_BYTES as usize - within).min(data.len() - done);
            let bytes = match sectors.entry(sector) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    let mut bytes = [0; SECTOR_BYTES as usize];
                    if count < bytes.len() {
                        self.below.read_at(sector * SECTOR_BYTES, &mut bytes)?;
                    }
                    new.insert(bytes)
                }
            };
            bytes[within..within + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        Ok(())
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = vec![0; len.min(1 << 20) as usize];
        let mut done = 0;
        while done < len {
            let count = zeros.len().min((len - done) as usize);
            self.write_at(offset + done, &zeros[..count])?;
            done += count as u64;
        }
        Ok(())
    }

    /// Writes the sectors in an order that differs from the order of writes and of offsets.
    fn flush(&self) -> io::Result<()> {
        let mut sectors = self.sectors.lock().unwrap();
        let mut order: Vec<_> = sectors.iter().collect();
        fastrand::shuffle(&mut order);
        for (sector, bytes) in order {
            self.below.write_at(sector * SECTOR_BYTES, bytes)?;
        }
        sectors.clear();
        self.below.flush()
    }
}
