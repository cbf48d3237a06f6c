//! Requests over io_uring instead of reads and writes of the device (Linux 6.14, where the module
//! parameter `enable_uring` of `fuse` is on; `Documentation/filesystems/fuse/fuse-io-uring.rst`).
//!
//! The kernel has a queue for each processor, and puts a request into that of the processor that it is
//! asked on. So each processor has threads that are bound to it and do what its queue holds: the way
//! there and back is a change of the running thread, and no other processor has to be woken. One call
//! hands in an answer and waits for the next request.
//!
//! A thread has room for one request. With more, the kernel would give it requests while it waits for a
//! disk and others of its queue are idle.
//!
//! The rings are made before INIT is answered: once the kernel was told of them it holds every request
//! back until all queues have an entry, or until one is refused. In the latter case requests come from
//! the device as ever, so its threads run besides; forgetting and interrupting always comes from there.
//!
//! A new entry gets only what is asked from then on. What waits in its queue already is taken by whoever
//! hands in the next answer there, and that thread may itself wait, for what is in the queue. The first
//! entry of the last queue makes the kernel begin, so nobody is told that the mount is ready before all
//! rings have given theirs.

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
use entry::Entry;

/// Fewest threads of a queue: one that waits for a disk must not keep others waiting that do not.
const THREADS_PER_QUEUE_MIN: usize = 2;

/// A ring, not yet in use.
pub(crate) struct Ring {
    ring: IoUring<Entry128>,
    /// The processor that its thread is bound to.
    cpu: u16,
    /// The queues that it serves.
    queues: Vec<u16>,
    /// Until its entries are with the kernel.
    not_yet: Sender<Never>,
}

/// Tells when all rings have given their entries to the kernel, or never will.
pub(crate) struct AllRegistered(Receiver<Never>);

/// What is never sent.
enum Never {}

impl AllRegistered {
    fn new() -> (Self, Sender<Never>) {
        let (not_yet, all) = channel();
        (Self(all), not_yet)
    }

    pub(crate) fn wait(&self) {
        // It ends with an error when all senders are gone.
        let _ = self.0.recv();
    }
}

/// Of no rings.
impl Default for AllRegistered {
    fn default() -> Self {
        Self::new().0
    }
}

impl Ring {
    /// Rings for all queues: for about as many threads, and for as many as are needed.
    ///
    /// # Errors
    /// If io_uring is not there or not allowed, or lacks something.
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
            // Queues of processors that are not there are shared out: each needs somebody.
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
        // Only the thread that serves it enters it: completions are made when that asks for them.
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
    /// One that the kernel refuses.
    pub(crate) fn of_no_queue(device: &Device) -> Self {
        Self::new(device, 0, vec![u16::MAX], AllRegistered::new().1).unwrap()
    }
}

/// What the thread of a ring has for itself.
pub(crate) struct RingThread {
    ring: IoUring<Entry128>,
    cpu: u16,
    /// One for each queue.
    entries: Vec<Entry>,
    /// Until the entries are with the kernel.
    not_yet: Option<Sender<Never>>,
    /// For answers to requests that lie where the answer goes.
    aside: Buffer,
}

impl RingThread {
    pub(crate) fn new(ring: Ring, agreed: &Agreed) -> Self {
        let Ring { ring, cpu, queues, not_yet } = ring;
        let len = agreed.buffer_len();
        let entries = queues.into_iter().map(|queue| Entry::new(queue, len)).collect();
        Self { ring, cpu, entries, not_yet: Some(not_yet), aside: Buffer::new(len) }
    }

    /// Gives all entries to the kernel, for the first time.
    fn register(&mut self) -> io::Result<()> {
        // Dropped at the end, whichever it is.
        let _not_yet = self.not_yet.take();
        self.ring.submitter().register_enable_rings()?;
        for index in 0..self.entries.len() {
            self.push(index)?;
        }
        self.ring.submit()?;
        Ok(())
    }

    /// Gives an entry to the kernel with the next submission.
    fn push(&mut self, index: usize) -> io::Result<()> {
        self.entries[index].push(&mut self.ring.submission(), index as u64)
    }

    fn completion(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Hands in what was pushed, and waits for a request or more.
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

/// Does the request that is in an entry, and puts the answer there.
fn fulfil(handler: &dyn Handler, entry: &mut Entry, aside: &mut Buffer, complaints: &Complaints) {
    let (header, payload_len) = (entry.in_header(), entry.payload_len());
    let (args, payload) = entry.parts();
    let (asked, room) = payload.split_at_mut(payload_len);
    // What is asked and what is answered share the memory. Most requests leave it to the answer.
    let is_shared = !asked.is_empty();
    let (asked, room) = if is_shared { (&*asked, aside.bytes()) } else { (&[][..], room) };
    let done = match Request::from_parts(header, args, asked) {
        Ok(request) => answer(handler, &request, room),
        Err(malformed) => {
            complaints.about(&malformed);
            Answer::failed(Errno::IO)
        }
    };
    debug_assert!(is_answered(header.opcode), "the others come from the device");
    if is_shared {
        payload[..done.len].copy_from_slice(&aside.bytes()[..done.len]);
    }
    entry.set_answer(done.header(header.unique), done.len);
}

/// Binds this thread to a processor, if that is allowed: without it all is slower and nothing is wrong.
fn bind_to(cpu: usize) {
    if cpu < CpuSet::MAX_CPU {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
}

/// Whether the error says that the mount is gone.
fn is_over(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED | Errno::NODEV)
}

fn unknown_completion() -> io::Error {
    io::Error::other("io_uring completed what was not asked for")
}
