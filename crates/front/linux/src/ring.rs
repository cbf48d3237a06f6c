//! Requests over io_uring instead of reads and writes of the device. Needs Linux 6.14 and the
//! module parameter `enable_uring` of `fuse`; see
//! `Documentation/filesystems/fuse/fuse-io-uring.rst`.
//!
//! The kernel has one queue per processor and queues a request on the processor of its caller. Each
//! processor has threads bound to it that serve its queue, so a request costs a context switch but
//! wakes no other processor. One system call submits a reply and waits for the next request. A
//! thread has room for one request per queue. With more, the kernel would assign it requests while
//! it waits for a disk and others are idle.
//!
//! Rings are created before INIT is answered. After INIT, the kernel holds back all requests until
//! every queue has an entry or one registration fails. If one fails, requests come from the device,
//! so its threads run too. FORGET and INTERRUPT always come from the device.
//!
//! A new entry receives only requests queued after it was registered. Older ones go to the next
//! thread that submits a reply to that queue, which may itself wait for one of them. The first
//! entry of the last queue makes the kernel start, so `ready` is called only after all rings have
//! registered their entries.

mod cpus;
mod entry;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{Receiver, Sender, channel};

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::answer::{Answer, Complaints, ServingThread, answer};
use crate::buffer::Buffer;
use crate::device::Device;
use crate::handshake::Agreed;
use crate::request::is_answered;
use crate::{Errno, Handler, Request};
use entry::RingEntry;

/// Minimum threads per queue: one that waits for a disk must not delay requests that do not.
const THREADS_PER_QUEUE_MIN: usize = 2;

/// A ring that is not yet in use.
pub(crate) struct Ring {
    ring: IoUring<Entry128>,
    /// Processor that its thread is bound to.
    cpu: u16,
    /// Queues that it serves.
    queues: Vec<u16>,
    /// Dropped when its entries are registered.
    not_yet: Sender<Never>,
}

/// Waits until all rings have registered their entries or have failed.
pub(crate) struct AllRegistered(Receiver<Never>);

/// Message type of a channel that only signals its end.
enum Never {}

impl AllRegistered {
    fn new() -> (Self, Sender<Never>) {
        let (not_yet, all) = channel();
        (Self(all), not_yet)
    }

    pub(crate) fn wait(&self) {
        // Returns an error when all senders are dropped.
        let _ = self.0.recv();
    }
}

/// The value for no rings: does not wait.
impl Default for AllRegistered {
    fn default() -> Self {
        Self::new().0
    }
}

impl Ring {
    /// Creates rings for all queues, with about `threads` threads, or more if the queues require
    /// it.
    ///
    /// # Errors
    /// If io_uring is unavailable, not permitted, or lacks a feature.
    pub(crate) fn for_all_queues(
        device: &Device,
        threads: usize,
    ) -> io::Result<(Vec<Self>, AllRegistered)> {
        let queues = u16::try_from(cpus::possible()?).map_err(io::Error::other)?;
        let cpus = u16::try_from(cpus::online()?).map_err(io::Error::other)?.clamp(1, queues);
        let threads_per_queue = threads.div_ceil(cpus.into()).max(THREADS_PER_QUEUE_MIN);
        let (all, not_yet) = AllRegistered::new();
        let new = |cpu, queues| Self::new(device, cpu, queues, not_yet.clone());
        let mut rings = Vec::new();
        for cpu in 0..cpus {
            // Queues of offline processors are distributed over the others: each queue needs a
            // thread.
            rings.push(new(cpu, (cpu..queues).step_by(cpus.into()).collect())?);
            for _ in 1..threads_per_queue {
                rings.push(new(cpu, vec![cpu])?);
            }
        }
        Ok((rings, all))
    }

    fn new(
        device: &Device,
        cpu: u16,
        queues: Vec<u16>,
        not_yet: Sender<Never>,
    ) -> io::Result<Self> {
        let entries = queues.len().next_power_of_two() as u32;
        // Only the serving thread enters the ring: completions are produced when it asks for them.
        let ring = IoUring::<Entry128, cqueue::Entry>::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(entries)?;
        ring.submitter().register_files(&[device.as_fd().as_raw_fd()])?;
        Ok(Self { ring, cpu, queues, not_yet })
    }
}

#[cfg(test)]
impl Ring {
    /// Returns a ring that the kernel rejects.
    pub(crate) fn of_no_queue(device: &Device) -> Self {
        Self::new(device, 0, vec![u16::MAX], AllRegistered::new().1).unwrap()
    }
}

/// State of a ring's thread.
pub(crate) struct RingThread {
    ring: IoUring<Entry128>,
    cpu: u16,
    /// One entry per queue.
    entries: Vec<RingEntry>,
    /// Dropped when the entries are registered.
    not_yet: Option<Sender<Never>>,
    /// Reply buffer for requests whose data occupies the reply's memory.
    aside: Buffer,
}

impl RingThread {
    pub(crate) fn new(ring: Ring, agreed: &Agreed) -> Self {
        let Ring { ring, cpu, queues, not_yet } = ring;
        let len = agreed.buffer_len();
        let entries = queues.into_iter().map(|queue| RingEntry::new(queue, len)).collect();
        Self { ring, cpu, entries, not_yet: Some(not_yet), aside: Buffer::new(len) }
    }

    /// Registers all entries with the kernel.
    fn register(&mut self) -> io::Result<()> {
        // Dropped at return, whether registration succeeds or fails.
        let _not_yet = self.not_yet.take();
        self.ring.submitter().register_enable_rings()?;
        for index in 0..self.entries.len() {
            self.push(index)?;
        }
        self.ring.submit()?;
        Ok(())
    }

    /// Queues an entry for the next submission.
    fn push(&mut self, index: usize) -> io::Result<()> {
        self.entries[index].push(&mut self.ring.submission(), index as u64)
    }

    fn completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Submits queued entries and waits for at least one request.
    fn wait(&self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            result => result.map(drop),
        }
    }
}

impl ServingThread for RingThread {
    fn transport(&self) -> &'static str {
        "io_uring"
    }

    fn run(&mut self, handler: &dyn Handler, complaints: &Complaints) -> io::Result<()> {
        bind_to(self.cpu.into());
        self.register()?;
        let mut left = self.entries.len();
        while left > 0 {
            self.wait()?;
            while let Some(completion) = self.completion() {
                let index = completion.user_data() as usize;
                let entry = self.entries.get_mut(index).ok_or_else(unknown_completion)?;
                match entry.completed(completion.result()) {
                    Ok(()) => {
                        fulfil(handler, entry, &mut self.aside, complaints);
                        self.push(index)?;
                    }
                    Err(error) if is_over(error) || !entry.is_registered() => left -= 1,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

/// Handles the request in an entry and stores the reply there.
fn fulfil(
    handler: &dyn Handler,
    entry: &mut RingEntry,
    aside: &mut Buffer,
    complaints: &Complaints,
) {
    let (header, payload_len) = (entry.in_header(), entry.payload_len());
    let (args, payload) = entry.parts();
    let (asked, room) = payload.split_at_mut(payload_len);
    // Request data and reply data share memory. Most requests have no data, so the reply can use it
    // directly.
    let is_shared = !asked.is_empty();
    let (asked, room) = if is_shared { (&*asked, aside.bytes()) } else { (&[][..], room) };
    let done = match Request::from_parts(header, args, asked) {
        Ok(request) => answer(handler, &request, room),
        Err(malformed) => {
            complaints.about(&malformed);
            Answer::failed(Errno::IO)
        }
    };
    debug_assert!(is_answered(header.opcode), "other errors come from the device");
    if is_shared {
        payload[..done.len].copy_from_slice(&aside.bytes()[..done.len]);
    }
    entry.set_answer(done.header(header.unique), done.len);
}

/// Binds this thread to a processor. Ignores errors, because without it requests are only slower.
fn bind_to(cpu: usize) {
    if cpu < CpuSet::MAX_CPU {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
}

/// Returns whether the error means that the mount is gone.
fn is_over(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV)
}

fn unknown_completion() -> io::Error {
    io::Error::other("io_uring completed an unknown request")
}
