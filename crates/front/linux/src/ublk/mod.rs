//! Block devices whose requests this process answers (ublk), on Linux 6.5 and later.
//!
//! The control device `/dev/ublk-control` adds and removes devices. Each device `N` has a character
//! device `/dev/ublkcN`, from which the threads of this process fetch requests, and a block device
//! `/dev/ublkbN`. Contents are copied by reads and writes of the character device (`USER_COPY`),
//! so the kernel never accesses the memory of this process.
//!
//! The protocol is described by the kernel's `Documentation/block/ublk.rst` and by
//! `include/uapi/linux/ublk_cmd.h` (GPL-2.0 WITH Linux-syscall-note or MIT).

mod abi;
mod control;
mod queue;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use crate::Errno;
use abi::{DeviceInfo, Parameters};
use control::Control;
use queue::Queue;

/// Unit of lengths and offsets in bytes.
const SECTOR: u64 = 512;
/// Maximum number of requests of a queue that wait or are performed.
const DEPTH: u16 = 128;
/// Maximum size of a request in bytes.
const REQUEST_BYTES: u32 = 1 << 20;
/// Maximum number of queues.
const QUEUES_MAX: u16 = 64;
/// Interval of checks of the stop flag.
const POLL: Duration = Duration::from_millis(50);

/// Contents of a block device. Several threads call it concurrently, with ranges within the device.
pub trait Disk: Send + Sync {
    /// Reads contents at an offset in bytes.
    ///
    /// # Errors
    /// The error number for the caller of the kernel.
    fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), Errno>;

    /// Writes contents at an offset in bytes.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Errno>;

    /// Makes all completed writes durable.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn flush(&self) -> Result<(), Errno>;

    /// Discards contents, which may stay.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn discard(&self, offset: u64, len: u64) -> Result<(), Errno>;

    /// Writes zeros.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), Errno>;
}

/// Properties of a block device.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Length in bytes. A part of a sector of 512 bytes at its end is left out.
    pub len: u64,
    /// Rejects all changes.
    pub read_only: bool,
    /// Number of queues: 1 to 64, at most one for each processor. Each has a thread.
    pub queues: u16,
}

/// A block device of the kernel. Dropping it removes it.
pub struct UblkDevice {
    control: Control,
    info: DeviceInfo,
    /// Length in bytes.
    len: u64,
}

impl UblkDevice {
    /// Adds a device with the next free number. It has no requests before [`Self::serve`].
    ///
    /// # Errors
    /// If the kernel does not offer ublk or is too old, without permission, or if an option is
    /// invalid.
    pub fn add(options: DiskOptions) -> io::Result<Self> {
        if !(1..=QUEUES_MAX).contains(&options.queues) {
            let message = format!("expected 1 to {QUEUES_MAX} queues, found {}", options.queues);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut control = Control::open()?;
        let mut info = DeviceInfo::new(options.queues, DEPTH, REQUEST_BYTES);
        control.add(&mut info)?;
        let sectors = options.len / SECTOR;
        let mut device = Self { control, info, len: sectors * SECTOR };
        if !info.has_user_copy() {
            let message = "the kernel's ublk cannot copy by reads and writes; Linux 6.5 can";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let parameters = Parameters::new(sectors, options.read_only, info.max_io_buf_bytes);
        device.control.set_parameters(info.dev_id, &parameters)?;
        Ok(device)
    }

    /// Returns the path of the block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.info.dev_id).into()
    }

    /// Answers requests until `stop` is set or the kernel ends the device. `started` is called when
    /// the block device exists.
    ///
    /// # Errors
    /// If a queue cannot be served, or the device cannot be started or stopped.
    pub fn serve(
        &mut self,
        disk: &dyn Disk,
        started: &mut dyn FnMut(),
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let (info, len) = (self.info, self.len);
        let path = format!("/dev/ublkc{}", info.dev_id);
        let file = File::options().read(true).write(true).open(path)?;
        thread::scope(|scope| {
            let (ready, all_ready) = channel();
            let mut threads = Vec::new();
            for number in 0..info.nr_hw_queues {
                let (begun, file) = (ready.clone(), &file);
                let work = move || {
                    // Requests belong to the thread that fetches them, so it creates its queue.
                    let queue = Queue::new(file, number, info.queue_depth);
                    match queue.and_then(|mut queue| queue.fetch().map(|()| queue)) {
                        Ok(queue) => {
                            let _ = begun.send(Ok(()));
                            queue.serve(disk, len, info.max_io_buf_bytes)
                        }
                        Err(error) => {
                            let _ = begun.send(Err(error));
                            Ok(())
                        }
                    }
                };
                match thread::Builder::new().spawn_scoped(scope, work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            }
            drop(ready);
            // Starting waits for requests of all queues, for ever if one of them has failed.
            let is_ready =
                all_ready.iter().take(info.nr_hw_queues.into()).collect::<io::Result<()>>();
            let begun = is_ready.and_then(|()| self.control.start(info.dev_id));
            if begun.is_ok() {
                started();
                while !stop.load(Ordering::Relaxed)
                    && !threads.iter().any(thread::ScopedJoinHandle::is_finished)
                {
                    thread::park_timeout(POLL);
                }
            }
            // Ends the requests for which the threads wait, so that they end.
            let stopped = self.control.stop(info.dev_id);
            let mut served = begun.and(stopped);
            for thread in threads {
                let of_queue =
                    thread.join().unwrap_or_else(|_| Err(io::Error::other("a queue panicked")));
                served = served.and(of_queue);
            }
            served
        })
    }
}

impl Drop for UblkDevice {
    fn drop(&mut self) {
        // It can be removed later by its number if this fails.
        let _ = self.control.remove(self.info.dev_id);
    }
}
