//! The check of one image. A worker thread checks, with further threads of its own. The main thread
//! shows progress and cancels the check on request.

use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use diskwright::check::{
    Collector, Finding, ImageCheck, Limits, Observer, Options, Phase, Summary, files_on_bad_areas,
    finding_line,
};
use diskwright::{Error, ImageOptions, Outcome, Result};

use super::output::{Output, Style};
use crate::terminal::CheckProgress;

/// Interval at which progress is shown, output is flushed and cancellation is checked.
const TICK: Duration = Duration::from_millis(50);
/// Maximum time that a cancelled check may take to end. A device that does not answer could delay
/// it for longer.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Checks an image and writes the report.
pub(super) fn check(
    path: &Path,
    open: &ImageOptions,
    options: &Options,
    stop: &'static AtomicBool,
    output: &Arc<Output>,
) -> Result<Outcome> {
    let subject = Arc::new(ImageCheck::open(path, open)?);
    let watch = Arc::new(CheckObserver::new(Arc::clone(&subject), stop, Arc::clone(output)));
    let summary = RunningCheck::start(options, Arc::clone(&watch))?.wait()?;
    watch.close();
    let mut report = watch.collector.report(&subject, summary.unwrap_or_default());
    // A check that was cancelled after it had completed was not interrupted.
    report.is_interrupted = stop.load(Ordering::Relaxed) && !report.summary.is_complete;
    if open.mapfile.is_some() && !report.is_interrupted {
        // The check has reported an image that cannot be opened.
        report.damaged_files = files_on_bad_areas(path, open).ok();
    }
    output.report(&report);
    Ok(report.outcome())
}

/// A running check.
struct RunningCheck {
    watch: Arc<CheckObserver>,
    worker: JoinHandle<()>,
    ended: Receiver<Result<Summary>>,
}

impl RunningCheck {
    fn start(options: &Options, watch: Arc<CheckObserver>) -> Result<Self> {
        let (end, ended) = channel();
        let (options, watched) = (*options, Arc::clone(&watch));
        let work = move || {
            // The receiver is gone if the check took too long to end.
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

    /// Waits for the end. Returns `None` if the check was cancelled and did not end in time.
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
                if asked.elapsed() >= CANCEL_TIMEOUT {
                    return Ok(None);
                }
            }
        }
    }
}

/// Observer of a check that collects findings and progress.
struct CheckObserver {
    subject: Arc<ImageCheck>,
    stop: &'static AtomicBool,
    output: Arc<Output>,
    collector: Collector,
    /// True if findings are accepted. Findings after the report are dropped.
    is_open: Mutex<bool>,
    found: AtomicU64,
    progress: Mutex<(Phase, u64, u64)>,
}

impl CheckObserver {
    fn new(subject: Arc<ImageCheck>, stop: &'static AtomicBool, output: Arc<Output>) -> Self {
        let limits = match output.style() {
            Style::Text | Style::Json => Limits::default(),
            // Each finding was already written.
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

    /// Rejects further findings.
    fn close(&self) {
        *self.is_open.lock().unwrap_or_else(PoisonError::into_inner) = false;
    }
}

impl Observer for CheckObserver {
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
        // Threads may report progress out of order.
        if (phase, done) >= (progress.0, progress.1) {
            *progress = (phase, done, total);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.output.has_failed()
    }
}
