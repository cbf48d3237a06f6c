//! A device that remembers what was written to it, for tests that stop the machine at any moment.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{BlockDevice, check_range};

/// Something that changed a device, or made its changes durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes written.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        data: Arc<[u8]>,
    },
    /// A range made zero.
    Zero {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
    /// All before it is durable.
    Flush,
}

impl Event {
    /// Does to a device what was done to the recorded one.
    ///
    /// # Errors
    /// As the device's own method.
    pub fn replay(&self, device: &dyn BlockDevice) -> io::Result<()> {
        match self {
            Self::Write { offset, data } => device.write_at(*offset, data),
            Self::Zero { offset, len } => device.zero_range(*offset, *len),
            Self::Flush => device.flush(),
        }
    }
}

/// Passes everything through to another device and remembers, in order, what succeeded.
///
/// The log keeps a copy of all data written until it is taken. Calls that overlap in time stand in
/// the log in the order in which the device beneath did them.
pub struct RecordingDevice {
    inner: Arc<dyn BlockDevice>,
    events: Mutex<Vec<Event>>,
}

impl RecordingDevice {
    /// Starts an empty log of what reaches `inner` through this device.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self { inner, events: Mutex::default() }
    }

    /// Number of events so far: the place of the next one.
    pub fn event_count(&self) -> usize {
        self.events.lock().len()
    }

    /// The log so far, which starts anew.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock())
    }

    /// Does something to the device beneath and logs it if that succeeded.
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

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn has_read_ahead(&self) -> bool {
        self.inner.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        self.inner.read_ahead(offset, len);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        check_range(self.len(), offset, data.len() as u64)?;
        self.record(Event::Write { offset, data: data.into() })
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.record(Event::Zero { offset, len })
    }

    /// Zeros, as one thing that discarded bytes may be.
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
