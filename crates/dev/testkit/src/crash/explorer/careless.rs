//! A deliberate bug, to check that the explorer finds it.

use std::io;
use std::sync::Arc;

use disk::{BlockDevice, DeviceRole};

/// A device whose flushes do nothing.
pub struct CarelessDevice(pub Arc<dyn BlockDevice>);

impl BlockDevice for CarelessDevice {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.0.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.zero_range(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
