//! A file system on several devices, as one device.
//!
//! The data device keeps its addresses. Each other device has a separate range of addresses, above every length that a
//! data device can have. So one copy-on-write view, undo file or write guard covers all devices, and a flush or
//! barrier orders the writes of all of them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{BlockDevice, ContentKind, check_range, moved};

/// Role of another device than the data device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRole {
    /// The log.
    Log,
    /// The contents of realtime files.
    Realtime,
}

impl DeviceRole {
    /// Returns the address of its first byte in a [`JoinedDevice`].
    #[must_use]
    pub const fn start(self) -> u64 {
        match self {
            Self::Log => 1 << 61,
            Self::Realtime => 1 << 62,
        }
    }

    /// Returns the role of the device with this address; `None` for the data device.
    const fn of(offset: u64) -> Option<Self> {
        match offset {
            0x4000_0000_0000_0000.. => Some(Self::Realtime),
            0x2000_0000_0000_0000.. => Some(Self::Log),
            _ => None,
        }
    }
}

/// Returns the end of the addresses of the device that contains `offset`: the length of the data device, or the end of
/// another one.
pub fn end_at(device: &(impl BlockDevice + ?Sized), offset: u64) -> u64 {
    match DeviceRole::of(offset) {
        None => device.len(),
        Some(part) => device.part_len(part).map_or(part.start(), |len| part.start() + len),
    }
}

/// One of the joined devices.
struct JoinedPart {
    device: Arc<dyn BlockDevice>,
    /// Number of writes that returned.
    written: AtomicU64,
    /// Number of writes that the last flush covers.
    flushed: Mutex<u64>,
}

impl JoinedPart {
    fn new(device: Arc<dyn BlockDevice>) -> Self {
        // Earlier writers may not have flushed, so the first flush is always made.
        Self { device, written: AtomicU64::new(1), flushed: Mutex::new(0) }
    }

    fn write(&self, write: impl FnOnce(&dyn BlockDevice) -> io::Result<()>) -> io::Result<()> {
        let outcome = write(&*self.device);
        self.written.fetch_add(1, Ordering::AcqRel);
        outcome
    }

    /// Flushes the device unless all writes that returned are flushed. A caller waits for a flush in progress.
    fn flush(&self) -> io::Result<()> {
        let written = self.written.load(Ordering::Acquire);
        let mut flushed = self.flushed.lock();
        if *flushed < written {
            // Writes that return while this waited for the lock are covered as well.
            let covered = self.written.load(Ordering::Acquire);
            self.device.flush()?;
            *flushed = covered;
        }
        Ok(())
    }
}

/// A data device together with a device for the log, one for realtime files, or both.
///
/// INVARIANT: a flush returns when everything written to any of the devices before it is durable. A log record may
/// refer to data on another device, and data may be written back only after the log record on another device.
pub struct JoinedDevice {
    data: JoinedPart,
    others: [Option<JoinedPart>; 2],
}

impl JoinedDevice {
    /// Joins devices to a data device.
    ///
    /// # Errors
    /// `InvalidInput` if a device is longer than its range of addresses.
    pub fn new(
        data: Arc<dyn BlockDevice>,
        log: Option<Arc<dyn BlockDevice>>,
        realtime: Option<Arc<dyn BlockDevice>>,
    ) -> io::Result<Self> {
        let longest = DeviceRole::Log.start();
        let all = [Some(&data), log.as_ref(), realtime.as_ref()];
        if all.into_iter().flatten().any(|device| device.len() > longest) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a device is too long"));
        }
        let others = [log.map(JoinedPart::new), realtime.map(JoinedPart::new)];
        Ok(Self { data: JoinedPart::new(data), others })
    }

    fn other(&self, part: DeviceRole) -> Option<&JoinedPart> {
        match part {
            DeviceRole::Log => self.others[0].as_ref(),
            DeviceRole::Realtime => self.others[1].as_ref(),
        }
    }

    /// Returns the device with a range of addresses, and the offset in it. The device checks the end.
    fn at(&self, offset: u64, len: u64) -> io::Result<(&JoinedPart, u64)> {
        let Some(part) = DeviceRole::of(offset) else { return Ok((&self.data, offset)) };
        check_range(end_at(self, offset), offset, len)?;
        let missing = || io::Error::other("the device is not attached");
        Ok((self.other(part).ok_or_else(missing)?, offset - part.start()))
    }

    fn members(&self) -> impl Iterator<Item = &JoinedPart> {
        std::iter::once(&self.data).chain(self.others.iter().flatten())
    }
}

impl BlockDevice for JoinedDevice {
    fn len(&self) -> u64 {
        self.data.device.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.other(part).map(|member| member.device.len())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let (member, offset) = self.at(offset, buf.len() as u64)?;
        member.device.read_at(offset, buf)
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        let (member, offset) = self.at(offset, len).ok()?;
        member.device.in_file(offset, len)
    }

    fn known_unreadable(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let (member, within) = self.at(offset, len).ok()?;
        let found = member.device.known_unreadable(within, len)?;
        Some(found.start + offset - within..found.end + offset - within)
    }

    fn known_zeros(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let (member, within) = self.at(offset, len).ok()?;
        Some(moved(member.device.known_zeros(within, len)?, within, offset))
    }

    fn has_read_ahead(&self) -> bool {
        self.members().any(|member| member.device.has_read_ahead())
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        if let Ok((member, offset)) = self.at(offset, 0) {
            member.device.read_ahead(offset, len, content);
        }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let (member, offset) = self.at(offset, data.len() as u64)?;
        member.write(|device| device.write_at(offset, data))
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let (member, offset) = self.at(offset, len)?;
        member.write(|device| device.zero_range(offset, len))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let (member, offset) = self.at(offset, len)?;
        member.write(|device| device.discard(offset, len))
    }

    fn flush(&self) -> io::Result<()> {
        self.members().try_for_each(JoinedPart::flush)
    }

    fn has_long_flushes(&self) -> bool {
        self.members().any(|member| member.device.has_long_flushes())
    }

    /// Flushes. A barrier of one device does not order the writes of another.
    fn barrier(&self) -> io::Result<()> {
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Event, Fault, FaultyDevice, MemoryDevice, OverlayDevice, RecordingDevice};

    const LOG: u64 = DeviceRole::Log.start();
    const REALTIME: u64 = DeviceRole::Realtime.start();

    fn recorded(bytes: u64) -> Arc<RecordingDevice> {
        Arc::new(RecordingDevice::new(Arc::new(MemoryDevice::new(bytes))))
    }

    /// Returns the number of flushes since the last call.
    fn flushes(device: &RecordingDevice) -> usize {
        device.take().iter().filter(|event| matches!(event, Event::Flush)).count()
    }

    #[test]
    fn parts_have_addresses_of_their_own() {
        let [data, log] = [8192, 4096].map(|bytes| Arc::new(MemoryDevice::new(bytes)));
        let joined = JoinedDevice::new(data.clone(), Some(log.clone()), None).unwrap();
        joined.write_at(0, b"data").unwrap();
        joined.write_at(LOG + 4092, b"tail").unwrap();
        assert!(joined.write_at(LOG + 4093, b"tail").is_err());
        assert!(
            joined.write_at(8190, b"data").is_err() && joined.read_at(REALTIME, &mut []).is_err()
        );
        let mut found = [0; 4];
        log.read_at(4092, &mut found).unwrap();
        assert_eq!(&found, b"tail");
        assert_eq!(
            [joined.len(), end_at(&joined, 5), end_at(&joined, LOG)],
            [8192, 8192, LOG + 4096]
        );
        assert_eq!(
            [DeviceRole::Log, DeviceRole::Realtime].map(|part| joined.part_len(part)),
            [Some(4096), None]
        );
        // A view over it covers all parts.
        let view = OverlayDevice::new(Arc::new(joined));
        view.write_at(LOG + 4092, b"view").unwrap();
        assert!(view.write_at(LOG + 4093, b"view").is_err());
        view.read_at(LOG + 4092, &mut found).unwrap();
        assert_eq!(&found, b"view");
        log.read_at(4092, &mut found).unwrap();
        assert_eq!(&found, b"tail");
    }

    #[test]
    fn flushes_and_barriers_reach_every_device_written() {
        let (data, log) = (recorded(8192), recorded(8192));
        let joined = JoinedDevice::new(data.clone(), Some(log.clone()), None).unwrap();
        joined.flush().unwrap();
        assert_eq!((flushes(&data), flushes(&log)), (1, 1), "earlier writers are not trusted");
        joined.write_at(0, b"data").unwrap();
        joined.barrier().unwrap();
        assert_eq!((flushes(&data), flushes(&log)), (1, 0));
        joined.write_at(LOG, b"record").unwrap();
        joined.flush().unwrap();
        joined.flush().unwrap();
        assert_eq!((flushes(&data), flushes(&log)), (0, 1));
    }

    #[test]
    fn failed_flushes_are_repeated() {
        let data = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(8192))));
        let joined = JoinedDevice::new(data.clone(), None, None).unwrap();
        joined.write_at(0, b"data").unwrap();
        data.set(Access::Flush, Fault::From(1));
        assert!(joined.flush().is_err() && joined.flush().is_err());
    }
}
