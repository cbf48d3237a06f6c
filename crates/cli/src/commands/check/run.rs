//! The check of one image: a thread does it (with others that it starts), and this one shows how far it is, and ends
//! it when it is asked to.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use diskwright::check::{
    Collector, Finding, Limits, Observer, Options, Phase, Subject, Summary, finding_line,
};
use diskwright::{Error, OpenImage, Outcome, Result};

use super::output::{Output, Style};
use crate::terminal::CheckProgress;

/// How often progress is shown, findings are passed on, and somebody looks whether the check is to end.
const TICK: Duration = Duration::from_millis(50);
/// How long a check that is asked to end may take. A device that does not answer would keep it for longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Checks an image and writes the report.
pub(super) fn check(
    path: &Path,
    open: &OpenImage,
    options: &Options,
    stop: &'static AtomicBool,
    output: &Arc<Output>,
) -> Result<Outcome> {
    let subject = Arc::new(Subject::open(path, open)?);
    let watch = Arc::new(Watch::new(Arc::clone(&subject), stop, Arc::clone(output)));
    let summary = Run::start(options, Arc::clone(&watch))?.wait()?;
    watch.close();
    let mut report = watch.collector.report(&subject, summary.unwrap_or_default());
    // One that was asked to end when all was done already was not interrupted.
    report.is_interrupted = stop.load(Ordering::Relaxed) && !report.summary.is_complete;
    output.report(&report);
    Ok(report.outcome())
}

/// A check under way.
struct Run {
    watch: Arc<Watch>,
    worker: JoinHandle<()>,
    ended: Receiver<Result<Summary>>,
}

impl Run {
    fn start(options: &Options, watch: Arc<Watch>) -> Result<Self> {
        let (end, ended) = channel();
        let (options, watched) = (*options, Arc::clone(&watch));
        let work = move || {
            // Nobody listens any more to one that took too long to end.
            let _ = end.send(watched.subject.check(&options, &*watched));
        };
        let worker = thread::Builder::new().name("check".into()).spawn(work);
        let worker = worker.map_err(|source| Error::Host {
            operation: "start a thread to check",
            path: watch.subject.path().to_owned(),
            source,
        })?;
        Ok(Self { watch, worker, ended })
    }

    /// Waits for the end. `None` if the check was asked to end and did not.
    fn wait(self) -> Result<Option<Summary>> {
        let progress = CheckProgress::new();
        let mut asked: Option<Instant> = None;
        loop {
            match self.ended.recv_timeout(TICK) {
                Ok(summary) => return summary.map(Some),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match self.worker.join() {
                    Ok(()) => return Ok(None),
                    Err(panic) => resume_unwind(panic),
                },
            }
            self.watch.show(&progress);
            self.watch.output.flush();
            if self.watch.is_cancelled() {
                let asked = *asked.get_or_insert_with(Instant::now);
                if asked.elapsed() >= PATIENCE {
                    return Ok(None);
                }
            }
        }
    }
}

/// Who is told what is found and how far the check is.
struct Watch {
    subject: Arc<Subject>,
    stop: &'static AtomicBool,
    output: Arc<Output>,
    collector: Collector,
    /// Whether findings still count: after the report none does.
    is_open: Mutex<bool>,
    found: AtomicU64,
    progress: Mutex<(Phase, u64, u64)>,
}

impl Watch {
    fn new(subject: Arc<Subject>, stop: &'static AtomicBool, output: Arc<Output>) -> Self {
        let limits = match output.style() {
            Style::Text | Style::Json => Limits::default(),
            // Each was written already.
            Style::JsonLines => Limits::NONE,
        };
        Self {
            subject,
            stop,
            output,
            collector: Collector::new(limits),
            is_open: Mutex::new(true),
            found: AtomicU64::new(0),
            progress: Mutex::new((Phase::Superblock, 0, 1)),
        }
    }

    fn show(&self, progress: &CheckProgress) {
        let (phase, done, total) = *self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let found = self.found.load(Ordering::Relaxed);
        progress.show(phase, done, total, self.subject.bytes_read(), found);
    }

    /// Lets nothing more be found.
    fn close(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Observer for Watch {
    fn found(&self, finding: Finding) {
        let is_open = self.is_open.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_open {
            return;
        }
        if self.output.style() == Style::JsonLines {
            self.output.write(&finding_line(self.subject.path(), &finding));
        }
        self.found.fetch_add(1, Ordering::Relaxed);
        self.collector.found(finding);
    }

    fn progress(&self, phase: Phase, done: u64, total: u64) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads may tell of it in another order than that in which they were done.
        if (phase, done) >= (progress.0, progress.1) {
            *progress = (phase, done, total);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.output.has_failed()
    }
}
