//! Copies file contents into the image on a pool of threads.
//!
//! Where each byte goes is decided before, by the one thread that makes the files; so the image is
//! the same whatever the number of threads here.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Scope, ScopedJoinHandle};

use blockdev::BlockDevice;
use source::{ContentFile, Detached, Stored};

use super::{BuildError, identity};
use crate::clone::{CloneTarget, Range};

/// Bytes copied at a time by one thread: large enough to make system calls cheap, small enough to
/// stay in the processor's cache between the read and the write.
const COPY_BYTES: usize = 256 << 10;

/// Files waiting for a thread.
const QUEUE_LEN: usize = 512;

/// A run of a file and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// First byte in the file.
    pub(super) file_offset: u64,
    /// First byte on the device.
    pub(super) device_offset: u64,
    /// Length in bytes.
    pub(super) len: u64,
}

/// One file to copy.
struct Job {
    body: Detached,
    runs: Runs,
}

/// The runs of a file; nearly always one.
pub(super) enum Runs {
    One(Run),
    Many(Vec<Run>),
}

impl Runs {
    fn as_slice(&self) -> &[Run] {
        match self {
            Self::One(run) => std::slice::from_ref(run),
            Self::Many(runs) => runs,
        }
    }
}

/// Where contents go.
#[derive(Clone)]
pub(super) struct Destination {
    pub(super) device: Arc<dyn BlockDevice>,
    /// The device's file, if it can share blocks with those of the source.
    pub(super) clones: Option<Arc<CloneTarget>>,
    /// Whether the sum of all contents is wanted: what is shared is read for it.
    pub(super) is_summed: bool,
}

/// A pool of copying threads, or none: then files are copied as they are handed in.
pub(super) struct Copier<'scope> {
    queue: Option<SyncSender<Job>>,
    threads: Vec<ScopedJoinHandle<'scope, Result<u64, BuildError>>>,
    destination: Destination,
    buffer: Vec<u8>,
    /// Sum over the contents copied.
    sum: u64,
}

impl<'scope> Copier<'scope> {
    /// Starts `threads` copying threads within `scope`.
    pub(super) fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        destination: Destination,
        threads: usize,
    ) -> Self {
        let mut copier =
            Self { queue: None, threads: Vec::new(), destination, buffer: Vec::new(), sum: 0 };
        if threads > 0 {
            let (sender, receiver) = sync_channel(QUEUE_LEN);
            let receiver = Arc::new(Mutex::new(receiver));
            copier.queue = Some(sender);
            for _ in 0..threads {
                let (receiver, destination) = (Arc::clone(&receiver), copier.destination.clone());
                copier.threads.push(scope.spawn(move || copy_jobs(&receiver, &destination)));
            }
        }
        copier
    }

    /// Copies `runs` of a file, now or soon.
    pub(super) fn copy(&mut self, body: Detached, runs: Runs) -> Result<(), BuildError> {
        let job = Job { body, runs };
        let Some(queue) = &self.queue else {
            let sum = self.destination.copy_job(&job, &mut self.buffer)?;
            self.sum = self.sum.wrapping_add(sum);
            return Ok(());
        };
        if queue.send(job).is_err() {
            // All threads have ended, which only an error makes them do.
            self.join()?;
        }
        Ok(())
    }

    /// Waits until everything is copied; the sum over all contents, in any order.
    pub(super) fn finish(mut self) -> Result<u64, BuildError> {
        self.join()?;
        Ok(self.sum)
    }

    fn join(&mut self) -> Result<(), BuildError> {
        self.queue = None;
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(outcome) => self.sum = self.sum.wrapping_add(outcome?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    }
}

fn copy_jobs(queue: &Mutex<Receiver<Job>>, destination: &Destination) -> Result<u64, BuildError> {
    let mut buffer = Vec::new();
    let mut sum = 0_u64;
    loop {
        let next = queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
        let Ok(job) = next else { return Ok(sum) };
        sum = sum.wrapping_add(destination.copy_job(&job, &mut buffer)?);
    }
}

impl Destination {
    /// Copies the contents of a file. Returns their sum.
    fn copy_job(&self, job: &Job, buffer: &mut Vec<u8>) -> Result<u64, BuildError> {
        let file = job.body.open()?;
        let mut sum = 0_u64;
        for run in job.runs.as_slice() {
            let shared = self.share(&file, run);
            let mut done = if self.is_summed { 0 } else { shared };
            while done < run.len {
                let end = if done < shared { shared } else { run.len };
                let len = (end - done).min(COPY_BYTES as u64) as usize;
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                let piece = &mut buffer[..len];
                file.read_at(run.file_offset + done, piece)?;
                if done >= shared {
                    let at = run.device_offset + done;
                    self.device.write_at(at, piece).map_err(BuildError::Write)?;
                }
                if self.is_summed {
                    sum = sum.wrapping_add(identity::contents_term(run.file_offset + done, piece));
                }
                done += len as u64;
            }
        }
        file.finish()?;
        Ok(sum)
    }

    /// Shares the first bytes of a run with the source, if that can be. Returns how many.
    fn share(&self, file: &ContentFile, run: &Run) -> u64 {
        let Some(clones) = &self.clones else { return 0 };
        let Some(stored) = file.stored(run.file_offset) else { return 0 };
        let Stored { file, offset, len } = stored;
        clones.share(Range { file, offset, len: len.min(run.len) }, run.device_offset)
    }
}
