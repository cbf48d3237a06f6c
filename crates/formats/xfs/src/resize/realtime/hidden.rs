//! A device without its realtime device, to open an image that has no section yet.

use std::io;
use std::sync::Arc;

use disk::{BlockDevice, DeviceRole};

pub(super) struct WithoutRealtime(pub(super) Arc<dyn BlockDevice>);

impl BlockDevice for WithoutRealtime {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        if part == DeviceRole::Realtime { None } else { self.0.part_len(part) }
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

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.discard(offset, len)
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }

    fn barrier(&self) -> io::Result<()> {
        self.0.barrier()
    }
}
