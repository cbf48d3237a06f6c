//! A device with injected errors, for tests of error handling.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{BlockDevice, ContentKind, DeviceRole};

/// A kind of access to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes, including zeroing.
    Write,
    /// Flushes.
    Flush,
}

/// The accesses of a kind that fail, counted from 1 when the fault is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// None.
    #[default]
    Never,
    /// This access only.
    Nth(u64),
    /// This access and all later ones.
    From(u64),
}

#[derive(Default)]
struct Counter {
    fault: Fault,
    count: u64,
    failures: u64,
}

/// Forwards all accesses to another device, except those that are set to fail. A failing access changes nothing.
pub struct FaultyDevice {
    inner: Arc<dyn BlockDevice>,
    counters: [Mutex<Counter>; 3],
}

impl FaultyDevice {
    /// Creates a device without faults.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, counters: Default::default() }
    }

    /// Sets which accesses of a kind fail, and restarts their counter.
    pub fn set(&self, access: Access, fault: Fault) {
        *self.counter(access).lock() = Counter { fault, ..Counter::default() };
    }

    /// Returns the number of accesses of a kind since its fault was set, including failed ones.
    pub fn count(&self, access: Access) -> u64 {
        self.counter(access).lock().count
    }

    /// Returns the number of failed accesses of a kind since its fault was set.
    pub fn failures(&self, access: Access) -> u64 {
        self.counter(access).lock().failures
    }

    fn counter(&self, access: Access) -> &Mutex<Counter> {
        let [read, write, flush] = &self.counters;
        match access {
            Access::Read => read,
            Access::Write => write,
            Access::Flush => flush,
        }
    }

    fn check(&self, access: Access) -> io::Result<()> {
        let mut counter = self.counter(access).lock();
        counter.count += 1;
        let fails = match counter.fault {
            Fault::Never => false,
            Fault::Nth(number) => counter.count == number,
            Fault::From(number) => counter.count >= number,
        };
        if fails {
            counter.failures += 1;
            return Err(io::Error::other("injected fault"));
        }
        Ok(())
    }
}

impl BlockDevice for FaultyDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.inner.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(Access::Read)?;
        self.inner.read_at(offset, buf)
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.inner.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.check(Access::Write)?;
        self.inner.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(Access::Write)?;
        self.inner.zero_range(offset, len)
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(Access::Write)?;
        self.inner.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.check(Access::Flush)?;
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn faults_hit_what_they_name() {
        let device = FaultyDevice::new(Arc::new(MemoryDevice::new(100)));
        let mut buf = [0; 10];
        device.read_at(0, &mut buf).unwrap();
        device.set(Access::Read, Fault::Nth(2));
        assert!(device.read_at(0, &mut buf).is_ok());
        assert!(device.read_at(0, &mut buf).is_err());
        assert!(device.read_at(0, &mut buf).is_ok());
        assert_eq!((device.count(Access::Read), device.failures(Access::Read)), (3, 1));

        device.set(Access::Write, Fault::From(2));
        device.write_at(0, &[1; 10]).unwrap();
        assert!(device.write_at(0, &[2; 10]).is_err());
        assert!(device.zero_range(0, 10).is_err());
        device.flush().unwrap();
        device.read_at(0, &mut buf).unwrap();
        assert_eq!(buf, [1; 10]);
        assert_eq!(device.failures(Access::Write), 2);

        device.set(Access::Flush, Fault::Nth(1));
        assert!(device.flush().is_err());
        assert!(device.flush().is_ok());
    }
}
