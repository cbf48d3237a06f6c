//! A device that records its writes, for crash tests.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{BlockDevice, ContentKind, DeviceRole, check_range, end_at};

/// A change of a device, or a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A write.
    Write {
        /// Start in bytes.
        offset: u64,
        /// Written bytes.
        data: Arc<[u8]>,
    },
    /// A range that was zeroed.
    Zero {
        /// Start in bytes.
        offset: u64,
        /// Length in bytes.
        len: u64,
    },
    /// A flush: all earlier events are durable.
    Flush,
}

impl Event {
    /// Applies the event to another device.
    ///
    /// # Errors
    /// Returns the errors of the device's method.
    pub fn replay(&self, device: &dyn BlockDevice) -> io::Result<()> {
        match self {
            Self::Write { offset, data } => device.write_at(*offset, data),
            Self::Zero { offset, len } => device.zero_range(*offset, *len),
            Self::Flush => device.flush(),
        }
    }
}

/// Forwards all accesses to another device and records successful changes in order.
///
/// The log contains a copy of all data written until it is taken. Concurrent calls are logged in the order in which the
/// underlying device executed them.
pub struct RecordingDevice {
    inner: Arc<dyn BlockDevice>,
    events: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Creates an empty log of the changes of `inner` through this device.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, events: Mutex::default() }
    }

    /// Returns the number of events so far, which is the index of the next one.
    pub fn event_count(&self) -> usize {
        self.events.lock().len()
    }

    /// Takes the log so far and starts a new one.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock())
    }

    /// Executes an event on the underlying device and logs it if that succeeded.
    fn record(&self, event: Event) -> io::Result<()> {
        let mut events = self.events.lock();
        event.replay(&*self.inner)?;
        events.push(event);
        Ok(())
    }
}

impl BlockDevice for RecordingDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.inner.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.inner.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(end_at(self, offset), offset, data.len() as u64)?;
        self.record(Event::Write { offset, data: data.into() })
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.record(Event::Zero { offset, len })
    }

    /// Writes zeros, as one possible result of a discard.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.record(Event::Zero { offset, len })
    }

    fn flush(&self) -> io::Result<()> {
        self.record(Event::Flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn the_log_rebuilds_the_device() {
        let memory = Arc::new(MemoryDevice::new(10_000));
        let device = RecordingDevice::new(memory.clone());
        device.write_at(10, &[1; 100]).unwrap();
        device.flush().unwrap();
        device.zero_range(20, 5).unwrap();
        assert!(device.write_at(9_999, &[1; 2]).is_err());
        assert_eq!(device.event_count(), 3);
        let events = device.take();
        assert_eq!(events[0], Event::Write { offset: 10, data: [1; 100].into() });
        assert_eq!(events[1..], [Event::Flush, Event::Zero { offset: 20, len: 5 }]);
        assert_eq!(device.event_count(), 0);
        let copy = MemoryDevice::new(10_000);
        events.iter().try_for_each(|event| event.replay(&copy)).unwrap();
        let (mut expected, mut found) = ([0; 200], [9; 200]);
        memory.read_at(0, &mut expected).unwrap();
        copy.read_at(0, &mut found).unwrap();
        assert_eq!(expected, found);
    }
}
