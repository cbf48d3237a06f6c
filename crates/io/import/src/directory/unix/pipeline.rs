//! Threads that scan batches ahead of the reader, which gets them in the walk's order.
//!
//! A thread takes the walk's next batch and its number under the walk's lock, scans it without a lock, and stores the
//! result under that number. Threads stay within a fixed number of batches ahead of the reader, which bounds memory and
//! open directories. Lock order: walk, then state.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

use super::host::Root;
use super::scan::{ScannedBatch, Scanner};
use super::walk::DirectoryWalk;
use crate::SourceError;

/// Maximum number of batches ahead of the reader, per thread.
const BATCHES_AHEAD: usize = 3;

/// Scans a walk on several threads. Dropping it stops them.
pub(super) struct Pipeline {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    walk: Mutex<DirectoryWalk>,
    state: Mutex<PipelineState>,
    /// Signals that the reader took a batch, or the source was closed.
    room: Condvar,
    /// Signals that a batch was stored, or a thread ended.
    ready: Condvar,
    ahead: usize,
}

#[derive(Default)]
struct PipelineState {
    /// Number of the batch at the front of `slots`.
    front: u64,
    slots: VecDeque<Option<ScannedBatch>>,
    is_closed: bool,
    running: usize,
}

impl Pipeline {
    pub(super) fn start(
        root: &Arc<Root>,
        walk: DirectoryWalk,
        threads: usize,
    ) -> Result<Self, SourceError> {
        let shared = Arc::new(Shared {
            walk: Mutex::new(walk),
            state: Mutex::new(PipelineState::default()),
            room: Condvar::new(),
            ready: Condvar::new(),
            ahead: threads * BATCHES_AHEAD,
        });
        let mut pipeline = Self { shared, threads: Vec::new() };
        for _ in 0..threads {
            let shared = pipeline.shared.clone();
            let scanner = Scanner::new(root.clone());
            shared.state.lock().running += 1;
            let running = Running(shared);
            let thread = std::thread::Builder::new()
                .name("source".to_owned())
                .spawn(move || running.0.run(scanner))
                .map_err(|e| SourceError::io("start a thread for", &root.path, e))?;
            pipeline.threads.push(thread);
        }
        Ok(pipeline)
    }

    /// Returns the next batch in order; an empty one without error is the end. Must not be called again after the end
    /// or an error.
    pub(super) fn next(&self, root: &Root) -> ScannedBatch {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(batch) = state.slots.front_mut().and_then(Option::take) {
                state.slots.pop_front();
                state.front += 1;
                drop(state);
                self.shared.room.notify_one();
                return batch;
            }
            if state.running == 0 {
                // All threads end before the last batch only after a panic.
                let error = io::Error::other("a thread of the source ended early");
                let error = Some(SourceError::io("read", &root.path, error));
                return ScannedBatch { entries: Vec::new(), error };
            }
            self.shared.ready.wait(&mut state);
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of a thread has been reported by its message and by `next`.
            let _ = thread.join();
        }
    }
}

/// Counts a thread as running until it ends, also by a panic.
struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
        self.0.ready.notify_all();
    }
}

impl Shared {
    fn run(&self, mut scanner: Scanner) {
        loop {
            let mut walk = self.walk.lock();
            if !self.wait_for_room(walk.seq) {
                return;
            }
            let seq = walk.seq;
            let batch = walk.next_batch();
            let is_last = batch.error.is_some() || batch.runs.is_empty();
            if is_last {
                // No other thread may call the walk after an error.
                self.close();
            }
            drop(walk);
            let scanned = scanner.scan(batch);
            self.put(seq, scanned);
            if is_last {
                return;
            }
        }
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.room.notify_all();
    }

    /// Waits until batch `seq` may be taken. Returns false if no more batches are needed.
    fn wait_for_room(&self, seq: u64) -> bool {
        let mut state = self.state.lock();
        while !state.is_closed && seq >= state.front + self.ahead as u64 {
            self.room.wait(&mut state);
        }
        !state.is_closed
    }

    fn put(&self, seq: u64, batch: ScannedBatch) {
        let mut state = self.state.lock();
        let index = (seq - state.front) as usize;
        while state.slots.len() <= index {
            state.slots.push_back(None);
        }
        state.slots[index] = Some(batch);
        drop(state);
        if index == 0 {
            self.ready.notify_one();
        }
    }
}
