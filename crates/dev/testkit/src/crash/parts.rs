//! Devices of one machine, each with a separate volatile cache.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use disk::{BlockDevice, Event, MemoryDevice, OverlayDevice, WindowDevice};

/// A device with a volatile cache, which only a flush of this device writes out.
pub struct CachedPart {
    inner: Arc<dyn BlockDevice>,
    cache: Mutex<Cache>,
    /// True to lose flushes, as a deliberate bug.
    swallows_flushes: bool,
}

struct Cache {
    view: OverlayDevice,
    pending: Vec<Event>,
}

impl CachedPart {
    /// Returns the device with an empty cache. `swallows_flushes` is a deliberate bug.
    #[must_use]
    pub fn new(inner: Arc<dyn BlockDevice>, swallows_flushes: bool) -> Self {
        let view = OverlayDevice::new(Arc::clone(&inner));
        let cache = Mutex::new(Cache { view, pending: Vec::new() });
        Self { inner, cache, swallows_flushes }
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, event: Event) -> io::Result<()> {
        let mut cache = self.cache();
        event.replay(&cache.view)?;
        cache.pending.push(event);
        Ok(())
    }
}

impl BlockDevice for CachedPart {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.cache().view.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Event::Write { offset, data: data.into() })
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        self.change(Event::Zero { offset, len })
    }

    fn flush(&self) -> io::Result<()> {
        if self.swallows_flushes {
            return Ok(());
        }
        let mut cache = self.cache();
        for event in std::mem::take(&mut cache.pending) {
            event.replay(&*self.inner)?;
        }
        cache.view = OverlayDevice::new(Arc::clone(&self.inner));
        self.inner.flush()
    }
}

/// Returns a part of a device.
///
/// # Panics
/// If the device is shorter.
#[must_use]
pub fn part_of(device: &Arc<dyn BlockDevice>, start: u64, len: u64) -> Arc<dyn BlockDevice> {
    Arc::new(WindowDevice::new(Arc::clone(device), start, len).expect("a part"))
}

/// Returns a copy of a device in memory. Only non-zero parts take memory.
///
/// # Panics
/// If the device cannot be read.
#[must_use]
pub fn copy_in_memory(device: &dyn BlockDevice) -> MemoryDevice {
    let copy = MemoryDevice::new(device.len());
    let mut bytes = vec![0; 1 << 20];
    for at in (0..device.len()).step_by(bytes.len()) {
        let piece = bytes.len().min((device.len() - at) as usize);
        device.read_at(at, &mut bytes[..piece]).expect("a readable device");
        if !disk::is_zero(&bytes[..piece]) {
            copy.write_at(at, &bytes[..piece]).expect("memory does not fail");
        }
    }
    copy
}
