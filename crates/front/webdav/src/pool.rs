//! Threads for operations on the file system, which block.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::{self, Scope};

use dav_server::fs::{FsError, FsResult};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::volume::Volume;

/// Number of threads.
const THREADS: usize = 8;

type Job = Box<dyn FnOnce(&Volume<'_>) + Send>;

/// Runs jobs on a fixed number of threads. Each request waits for one job at a time, so the number of connections bounds
/// the queue.
#[derive(Clone)]
pub(crate) struct JobPool {
    queue: mpsc::Sender<Job>,
}

impl JobPool {
    /// Starts the threads. They end when all references of the pool are dropped and the queue is empty.
    ///
    /// # Errors
    /// If the host does not start a thread.
    pub(crate) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        volume: &'scope Volume<'scope>,
    ) -> io::Result<Self> {
        let (queue, jobs) = mpsc::channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..THREADS {
            let jobs = jobs.clone();
            let work = move || {
                loop {
                    // In its own statement, so that the lock is released before the job runs.
                    let next = jobs.lock().recv();
                    match next {
                        Ok(job) => job(volume),
                        Err(_) => break,
                    }
                }
            };
            thread::Builder::new().name("webdav".into()).spawn_scoped(scope, work)?;
        }
        Ok(Self { queue })
    }

    /// Runs a job and waits for its result.
    ///
    /// # Errors
    /// Returns the errors of the job, or `GeneralFailure` if it panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Volume<'_>) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        let (answer, answered) = oneshot::channel();
        // If the request was cancelled, the result is dropped.
        self.start_job(move |volume| drop(answer.send(job(volume))));
        answered.await.unwrap_or(Err(FsError::GeneralFailure))
    }

    /// Starts a job without waiting for it.
    pub(crate) fn start_job(&self, job: impl FnOnce(&Volume<'_>) + Send + 'static) {
        // Without threads the job is dropped, and a waiting request fails.
        let _ = self.queue.send(Box::new(job));
    }
}
