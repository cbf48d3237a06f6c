//! Checking and repairing, as the programs for it have in common.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use check::{Finding, Observer, Options, Severity};
use diskwright::repair::Repair;
use diskwright::{OpenImage, Result};
use repair::Plan;

/// What may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    /// Nothing.
    Look,
    /// What is wrong and nobody loses anything by.
    MendHarmless,
    /// Everything.
    Mend,
}

/// How an image was found and left.
#[derive(Debug)]
pub(crate) struct Mended {
    /// How much is still wrong.
    pub(crate) left: u64,
    /// Whether the image was changed.
    pub(crate) is_changed: bool,
    /// Whether it was ended by a signal.
    pub(crate) is_interrupted: bool,
    /// The first error of the device, if it failed to read.
    pub(crate) device_error: Option<String>,
}

/// Looks only for whether to go on.
struct Watch(&'static AtomicBool);

impl Observer for Watch {
    fn found(&self, _: Finding) {}

    fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Checks an image, and repairs what may be. With `undo`, what was there before is kept in that file.
pub(crate) fn mend(
    image: &Path,
    open: &OpenImage,
    may: May,
    undo: Option<&Path>,
) -> Result<Mended> {
    let stop = diskwright::stop_on_signals()?;
    let repair = match may {
        May::Look => Repair::open_to_plan(image, open)?,
        May::MendHarmless | May::Mend => Repair::open(image, open)?,
    };
    let plan = repair.plan(&Options::default(), &Watch(stop))?;
    if stop.load(Ordering::Relaxed) {
        return Ok(Mended { left: 0, is_changed: false, is_interrupted: true, device_error: None });
    }
    if !plan.findings.is_empty() {
        let _ = repair.report_of(&plan).write_text(&mut io::stdout());
    }
    let is_harmless = plan.findings.iter().all(|found| found.code.severity == Severity::Harmless);
    let goes_on = may == May::Mend || (may == May::MendHarmless && is_harmless);
    if !goes_on || plan.steps.is_empty() {
        let left = plan.findings.len() as u64;
        let device_error = repair.device_error().map(str::to_owned);
        return Ok(Mended { left, is_changed: false, is_interrupted: false, device_error });
    }
    let kept = carry_out(&repair, &plan, undo, stop)?;
    let (left, failed) = (Left::default(), repair.reads_failed());
    repair.check(&Options::default(), &left)?;
    let left = left.0.into_inner();
    if let (Some(file), None, 0) = (kept, undo, left) {
        // It was there for the moment in which a kill would have left half of the repair.
        let _ = std::fs::remove_file(file);
    }
    let is_interrupted = stop.load(Ordering::Relaxed);
    let device_error = repair.device_error().filter(|_| repair.reads_failed() > failed);
    let device_error = device_error.map(str::to_owned);
    Ok(Mended { left, is_changed: true, is_interrupted, device_error })
}

/// Returns the file with what was there before, if there is one.
fn carry_out(
    repair: &Repair,
    plan: &Plan,
    undo: Option<&Path>,
    stop: &AtomicBool,
) -> Result<Option<PathBuf>> {
    let prepared = repair.prepare(plan, undo)?;
    let done = prepared.carry_out(&mut |_, _| !stop.load(Ordering::Relaxed))?;
    Ok(done.undo)
}

/// Counts what is found.
#[derive(Default)]
struct Left(AtomicU64);

impl Observer for Left {
    fn found(&self, _: Finding) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
