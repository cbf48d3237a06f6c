//! The device of a claimed file system.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use disk::{BlockDevice, ContentKind, DeviceRole};
use parking_lot::{Condvar, Mutex};
use zerocopy::IntoBytes;

use super::block::MmpBlock;
use super::options::MmpOptions;
use crate::format::mmp::{CHECK_INTERVAL_MIN, update_interval};
use crate::format::mmp::{RawMmp, SEQUENCE_CHECK, SEQUENCE_CLEAN, SEQUENCE_MAX, SIZE};
use crate::format::superblock::Superblock;

/// Device of a claimed file system.
///
/// Readers see the MMP block of a file system that no host uses, and writes to the block take effect at the release. On
/// the device, a thread updates the block at each interval. Without threads, a write updates it if it is due.
///
/// INVARIANT: nothing is written after another host has changed the block.
///
/// If dropped without [`Self::release`], the block is left as after a crash.
pub struct MmpDevice {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    is_released_when_dropped: AtomicBool,
}

/// Parts that the thread shares with the device.
struct Shared {
    block: MmpBlock,
    options: MmpOptions,
    /// Time between updates.
    interval: Duration,
    /// Maximum age of the last update before a write updates the block itself.
    age_max: AtomicU64,
    /// Time of the last update in nanoseconds since 1970.
    updated: AtomicU64,
    is_lost: AtomicBool,
    /// True if anything else than the block was written.
    is_written: AtomicBool,
    state: Mutex<MmpState>,
    wake: Condvar,
}

struct MmpState {
    /// Contents of the block on the device.
    live: RawMmp,
    /// Contents that readers see, and that are written at the release.
    shown: [u8; SIZE],
    /// True if `shown` was written through the device.
    is_replaced: bool,
    /// True if the block was not marked as unused when the file system was claimed.
    was_stale: bool,
    is_ended: bool,
}

impl MmpDevice {
    /// Wraps the device of a claimed file system. `own` is on the device instead of `found`.
    pub(super) fn new(
        block: MmpBlock,
        found: RawMmp,
        own: RawMmp,
        options: &MmpOptions,
        sb: &Superblock,
    ) -> Self {
        let interval = update_interval(sb.raw.mmp_interval.get());
        let was_stale = found.seq != SEQUENCE_CLEAN;
        let mut shown = if was_stale { unused(&own, sb) } else { found };
        if was_stale {
            shown.seal(sb.features.metadata_csum().then_some(sb.checksum_seed));
        }
        let mut bytes = [0; SIZE];
        bytes.copy_from_slice(shown.as_bytes());
        let state =
            MmpState { live: own, shown: bytes, is_replaced: false, was_stale, is_ended: false };
        let interval = options.second * u32::from(interval);
        let shared = Arc::new(Shared {
            block,
            options: *options,
            interval,
            age_max: AtomicU64::new(nanoseconds(interval)),
            updated: AtomicU64::new(now()),
            is_lost: AtomicBool::new(false),
            is_written: AtomicBool::new(false),
            state: Mutex::new(state),
            wake: Condvar::new(),
        });
        let runs = Arc::clone(&shared);
        let thread = thread::Builder::new().name("mmp".into()).spawn(move || runs.run()).ok();
        if thread.is_some() {
            // Another host waits for more than twice this time.
            shared.age_max.store(nanoseconds(interval.saturating_mul(2)), Ordering::Relaxed);
        }
        let is_released_when_dropped = AtomicBool::new(false);
        Self { shared, thread: Mutex::new(thread), is_released_when_dropped }
    }

    /// Sets whether dropping the device releases the file system. Errors are then ignored.
    pub fn release_when_dropped(&self, is_released: bool) {
        self.is_released_when_dropped.store(is_released, Ordering::Relaxed);
    }

    /// Makes the last update so old that the next write updates the block first. For tests.
    #[doc(hidden)]
    pub fn age_for_tests(&self) {
        self.shared.updated.store(0, Ordering::Relaxed);
    }

    /// Marks the file system as unused. After a check, or if nothing was written, the block gets its earlier contents.
    ///
    /// # Errors
    /// If the device fails, or if another host has taken the file system; nothing is written then.
    pub fn release(&self) -> io::Result<()> {
        self.end();
        let shared = &*self.shared;
        if shared.is_lost.load(Ordering::Acquire) {
            return Err(lost());
        }
        let mut state = shared.state.lock();
        shared.compare(&state)?;
        let is_changed =
            shared.is_written.load(Ordering::Relaxed) && state.live.seq != SEQUENCE_CHECK;
        if !state.is_replaced && (state.was_stale || is_changed) {
            let mut raw = state.live.clone();
            raw.seq = SEQUENCE_CLEAN.into();
            raw.time = shared.options.now().into();
            let interval = shared.interval.as_nanos() / shared.options.second.as_nanos().max(1);
            let interval = u16::try_from(interval).unwrap_or(u16::MAX);
            raw.check_interval = interval.max(CHECK_INTERVAL_MIN).into();
            return shared.block.write(&mut raw);
        }
        let is_nameless = |raw: &RawMmp| raw.nodename == MmpOptions::DEFAULT.node;
        if state.is_replaced
            && !is_nameless(&state.live)
            && let Some(mut raw) = RawMmp::parse(&state.shown, None).ok().filter(is_nameless)
        {
            // A nested claim does not know the names of host and device.
            (raw.nodename, raw.bdevname) = (state.live.nodename, state.live.bdevname);
            state.is_replaced = false;
            return shared.block.write(&mut raw);
        }
        state.is_replaced = false;
        shared.block.put(&state.shown)
    }

    /// Ends the updates.
    fn end(&self) {
        self.shared.state.lock().is_ended = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

impl Drop for MmpDevice {
    fn drop(&mut self) {
        let is_ended = self.shared.state.lock().is_ended;
        if is_ended {
            return;
        }
        if self.is_released_when_dropped.load(Ordering::Relaxed) {
            let _ = self.release();
        } else {
            self.end();
        }
    }
}

impl Shared {
    /// Updates the block at each interval until the claim ends.
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_ended && !self.is_lost.load(Ordering::Acquire) {
            let timeout = self.wake.wait_for(&mut state, self.interval);
            if timeout.timed_out() && !state.is_ended {
                // After a failure, writes try again when the block is too old.
                let _ = self.update(&mut state);
            }
        }
    }

    /// Writes the next sequence number.
    fn update(&self, state: &mut MmpState) -> io::Result<()> {
        self.compare(state)?;
        let mut next = state.live.clone();
        if next.seq != SEQUENCE_CHECK {
            next.seq = (next.seq.get() % SEQUENCE_MAX + 1).into();
        }
        next.time = self.options.now().into();
        // A failed write may have reached the device.
        let written = self.block.write(&mut next);
        state.live = next;
        written?;
        self.updated.store(now(), Ordering::Relaxed);
        Ok(())
    }

    /// Fails if another host has changed the block.
    fn compare(&self, state: &MmpState) -> io::Result<()> {
        match self.block.read() {
            Ok(found) if found == state.live => Ok(()),
            Err(vfs::Error::Device(error)) => Err(error),
            Ok(_) | Err(_) => {
                self.is_lost.store(true, Ordering::Release);
                Err(lost())
            }
        }
    }

    /// Fails if another host may use the file system.
    fn check(&self) -> io::Result<()> {
        if self.is_lost.load(Ordering::Acquire) {
            return Err(lost());
        }
        let age = now().saturating_sub(self.updated.load(Ordering::Relaxed));
        if age < self.age_max.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut state = self.state.lock();
        if state.is_ended { Ok(()) } else { self.update(&mut state) }
    }

    /// Splits a range into the part before the MMP block, the part inside, and the part after it.
    fn split(&self, offset: u64, len: u64) -> [Range<u64>; 3] {
        let (block, end) = (self.block.range(), offset.saturating_add(len));
        let clip = |at: u64| at.clamp(offset, end);
        let (start, stop) = (clip(block.start), clip(block.end));
        [offset..start, start..stop, stop..end]
    }

    /// Writes the parts of a range outside the block with `write`, and the part inside with `replace`.
    fn write_parts(
        &self,
        offset: u64,
        len: u64,
        write: impl Fn(Range<u64>) -> io::Result<()>,
        replace: impl FnOnce(&mut [u8], Range<u64>),
    ) -> io::Result<()> {
        self.check()?;
        let [before, inside, after] = self.split(offset, len);
        for part in [before, after] {
            if !part.is_empty() {
                self.is_written.store(true, Ordering::Relaxed);
                write(part)?;
            }
        }
        if !inside.is_empty() {
            let mut state = self.state.lock();
            state.is_replaced = true;
            let start = self.block.range().start;
            let at = (inside.start - start) as usize..(inside.end - start) as usize;
            replace(&mut state.shown[at], inside);
        }
        Ok(())
    }
}

impl BlockDevice for MmpDevice {
    fn len(&self) -> u64 {
        self.shared.block.device.len()
    }

    fn part_len(&self, part: DeviceRole) -> Option<u64> {
        self.shared.block.device.part_len(part)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.shared.block.device.read_at(offset, buf)?;
        let [_, inside, _] = self.shared.split(offset, buf.len() as u64);
        if !inside.is_empty() {
            let start = self.shared.block.range().start;
            let of_block = (inside.start - start) as usize..(inside.end - start) as usize;
            let of_buf = (inside.start - offset) as usize..(inside.end - offset) as usize;
            buf[of_buf].copy_from_slice(&self.shared.state.lock().shown[of_block]);
        }
        Ok(())
    }

    fn in_file(&self, offset: u64, len: u64) -> Option<(&File, u64)> {
        let [_, inside, _] = self.shared.split(offset, len);
        if inside.is_empty() { self.shared.block.device.in_file(offset, len) } else { None }
    }

    fn has_read_ahead(&self) -> bool {
        self.shared.block.device.has_read_ahead()
    }

    fn read_ahead(&self, offset: u64, len: u64, content: ContentKind) {
        self.shared.block.device.read_ahead(offset, len, content);
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let of_data =
            |part: &Range<u64>| &data[(part.start - offset) as usize..(part.end - offset) as usize];
        let device = &self.shared.block.device;
        self.shared.write_parts(
            offset,
            data.len() as u64,
            |part| device.write_at(part.start, of_data(&part)),
            |shown, part| shown.copy_from_slice(of_data(&part)),
        )
    }

    fn zero_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let device = &self.shared.block.device;
        let zero = |part: Range<u64>| device.zero_range(part.start, part.end - part.start);
        self.shared.write_parts(offset, len, zero, |shown, _| shown.fill(0))
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let device = &self.shared.block.device;
        let discard = |part: Range<u64>| device.discard(part.start, part.end - part.start);
        self.shared.write_parts(offset, len, discard, |_, _| ())
    }

    fn flush(&self) -> io::Result<()> {
        self.shared.block.device.flush()
    }

    fn has_long_flushes(&self) -> bool {
        self.shared.block.device.has_long_flushes()
    }

    fn barrier(&self) -> io::Result<()> {
        self.shared.block.device.barrier()
    }

    fn drop_cache(&self, offset: u64, len: u64) {
        self.shared.block.device.drop_cache(offset, len);
    }
}

/// Returns the block of a file system that was in use and is unused now.
fn unused(own: &RawMmp, sb: &Superblock) -> RawMmp {
    let mut raw = own.clone();
    raw.seq = SEQUENCE_CLEAN.into();
    raw.check_interval = sb.raw.mmp_interval.get().max(CHECK_INTERVAL_MIN).into();
    raw
}

fn lost() -> io::Error {
    io::Error::other("another host has changed the MMP block and may use the image")
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the time in nanoseconds since 1970. It is 0 without a clock; the block then never becomes too old.
fn now() -> u64 {
    let now = vfs::clock::now().unwrap_or_default();
    let seconds = u64::try_from(now.sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(now.nsec.into())
}
