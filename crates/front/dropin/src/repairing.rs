//! Checks and repairs, shared by the programs.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diskwright::repair::Repair;
use diskwright::{ImageOptions, Result};
use operations::repair::Plan;
use vfs::check::{Finding, Observer, Options, Phase, Severity};

use crate::completion::Completion;
use crate::invoked::{say, write_out};

/// Permitted changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    /// None.
    Look,
    /// Repairs of harmless damage.
    MendHarmless,
    /// All repairs.
    Mend,
}

/// Result of a check or repair.
#[derive(Debug)]
pub(crate) struct Repaired {
    /// Number of remaining findings.
    pub(crate) left: u64,
    /// True if the image was changed.
    pub(crate) is_changed: bool,
    /// True if a signal interrupted it.
    pub(crate) is_interrupted: bool,
    /// First read error of the device.
    pub(crate) device_error: Option<String>,
}

/// Observer that forwards progress and cancels on signals.
struct CancellingObserver<'c> {
    stop: &'static AtomicBool,
    completion: Option<&'c Completion>,
}

impl Observer for CancellingObserver<'_> {
    fn found(&self, _: Finding) {}

    fn progress(&self, phase: Phase, done: u64, total: u64) {
        if let Some(completion) = self.completion {
            completion.progress(phase, done, total);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Findings about copies of the superblock and of group descriptors. e2fsck rewrites such copies silently, and they do
/// not affect its exit status. Images of `e2image -ra` and genext2fs have none.
const COPIES: [&str; 2] = ["ext4-superblock-backup", "ext4-group-backup"];

/// Returns whether a finding affects the exit status.
fn counts(finding: &Finding) -> bool {
    !COPIES.contains(&finding.code.name)
}

/// Checks an image and performs the permitted repairs.
pub(crate) fn repair(
    image: &Path,
    open: &ImageOptions,
    may: May,
    completion: Option<&Completion>,
) -> Result<Repaired> {
    let stop = diskwright::stop_on_signals()?;
    let repair = match may {
        May::Look => Repair::open_to_plan(image, open)?,
        May::MendHarmless | May::Mend => Repair::open(image, open)?,
    };
    let plan = repair.plan(&Options::default(), &CancellingObserver { stop, completion })?;
    if stop.load(Ordering::Relaxed) {
        return Ok(Repaired {
            left: 0,
            is_changed: false,
            is_interrupted: true,
            device_error: None,
        });
    }
    let found = plan.findings.iter().filter(|finding| counts(finding)).count() as u64;
    if found > 0 {
        write_out(|out| repair.report_of(&plan).write_text(out));
    } else if !plan.findings.is_empty() {
        let count = plan.findings.len();
        let name = image.display();
        say(format_args!(
            "{name}: {count} copies of the superblock or descriptors differ or are missing"
        ));
    }
    let is_harmless =
        plan.findings.iter().all(|f| f.code.severity == Severity::Harmless || !counts(f));
    let goes_on = may == May::Mend || (may == May::MendHarmless && is_harmless);
    if !goes_on || plan.steps.is_empty() {
        let left = found;
        let device_error = repair.device_error().map(str::to_owned);
        return Ok(Repaired { left, is_changed: false, is_interrupted: false, device_error });
    }
    let kept = carry_out(&repair, &plan, stop)?;
    let (left, failed) = (Left::default(), repair.reads_failed());
    repair.check(&Options::default(), &left)?;
    let left = left.0.into_inner();
    if let (Some(file), 0) = (kept, left) {
        // The undo file was needed only in case of an interruption during the repair.
        let _ = std::fs::remove_file(file);
    }
    let is_interrupted = stop.load(Ordering::Relaxed);
    let device_error = repair.device_error().filter(|_| repair.reads_failed() > failed);
    let device_error = device_error.map(str::to_owned);
    // Changes other than those of copies: a repair without findings processes orphans or clears flags.
    let is_changed = found > 0 || plan.findings.is_empty();
    Ok(Repaired { left, is_changed, is_interrupted, device_error })
}

/// Executes the plan. Returns the undo file, if there is one.
fn carry_out(repair: &Repair, plan: &Plan, stop: &AtomicBool) -> Result<Option<PathBuf>> {
    let prepared = repair.prepare(plan, None)?;
    let done = prepared.carry_out(&mut |_, _| !stop.load(Ordering::Relaxed))?;
    Ok(done.undo)
}

/// Observer that counts findings.
#[derive(Default)]
struct Left(AtomicU64);

impl Observer for Left {
    fn found(&self, finding: Finding) {
        self.0.fetch_add(counts(&finding).into(), Ordering::Relaxed);
    }
}
