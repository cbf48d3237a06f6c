//! Trial of a repair: rounds of checking and repairing until nothing is found.

use std::ops::Range;
use std::sync::Arc;

use disk::BlockDevice;
use parking_lot::Mutex;
use vfs::Result;
use vfs::check::{Finding, Observer, Phase, Summary};

use crate::repair::{Staging, Step};

/// Maximum number of findings kept in a round. The others are found again in the next round.
const FINDINGS_MAX: usize = 200_000;
/// Maximum number of rounds.
const ROUNDS_MAX: u32 = 64;

/// A format's implementation of a repair. All changes go into a staging, in steps.
pub trait Repairer: Sync {
    /// Prepares the image for a check: ensures a valid superblock and replays the journal or log. A log that cannot
    /// be replayed completely is replayed as far as possible and then emptied.
    ///
    /// `is_sound` means that the check finds no damage. Then only pending changes are written back, and no structure
    /// is reconstructed.
    ///
    /// # Errors
    /// `Unsupported` if the image has unknown features; `Corrupt` if too little of the image is left for a repair.
    fn begin(&self, staging: &Arc<Staging>, is_sound: bool) -> Result<()>;

    /// Checks the state in the staging.
    ///
    /// # Errors
    /// Returns the errors of the format's check.
    fn check(&self, staging: &Arc<Staging>, observer: &dyn Observer) -> Result<Summary>;

    /// Repairs the findings that must be repaired first. Returns whether anything was changed.
    ///
    /// # Errors
    /// If the device fails. A finding that cannot be repaired is not an error.
    fn repair(&self, staging: &Arc<Staging>, findings: &[Finding]) -> Result<bool>;

    /// Clears marks of damage in the image, after a check without findings.
    ///
    /// # Errors
    /// If the device fails.
    fn finish(&self, staging: &Arc<Staging>) -> Result<()>;

    /// Returns byte ranges of a sound image that change with every modification of the image.
    fn witnesses(&self, device: &dyn BlockDevice) -> Vec<Range<u64>>;
}

/// A planned repair.
pub struct Plan {
    /// Findings of a check of the original image.
    pub findings: Vec<Finding>,
    /// Summary of that check.
    pub looked_at: Summary,
    /// Changes, in this order.
    pub steps: Vec<Step>,
    /// Findings of a check of the changed image: empty if everything could be repaired.
    pub left: Vec<Finding>,
    /// Summary of the last check.
    pub summary: Summary,
    /// True if that check saw the result of all steps.
    pub is_result_checked: bool,
    /// Number of failed reads within the image while the plan was made.
    pub reads_failed: u64,
}

/// Keeps findings and forwards all other calls.
struct RecordingObserver<'o> {
    observer: &'o dyn Observer,
    findings: Mutex<Vec<Finding>>,
}

impl Observer for RecordingObserver<'_> {
    fn found(&self, finding: Finding) {
        let mut findings = self.findings.lock();
        if findings.len() < FINDINGS_MAX {
            findings.push(finding);
        }
    }

    fn progress(&self, phase: Phase, done: u64, total: u64) {
        self.observer.progress(phase, done, total);
    }

    fn is_cancelled(&self) -> bool {
        self.observer.is_cancelled()
    }
}

/// Plans a repair of an image by trying it out in `staging`. `observer` gets the findings of the first check, and all
/// progress. The image is not modified.
///
/// A plan has no steps if the device failed to read: a conclusion from such a read may be false.
///
/// # Errors
/// Returns the errors of the methods of `repairer`. If the observer cancels, the plan contains the steps up to that
/// point.
pub fn make_plan(
    repairer: &dyn Repairer,
    staging: &Arc<Staging>,
    observer: &dyn Observer,
) -> Result<Plan> {
    let plan = try_out(repairer, staging, observer)?;
    Ok(if plan.reads_failed > 0 { plan.withheld() } else { plan })
}

impl Plan {
    /// A plan without findings, for an image that could not be checked because of failed reads.
    pub fn unknown(reads_failed: u64) -> Self {
        Self {
            findings: Vec::new(),
            looked_at: Summary::default(),
            steps: Vec::new(),
            left: Vec::new(),
            summary: Summary::default(),
            is_result_checked: false,
            reads_failed,
        }
    }

    /// Returns the plan without its steps. All findings remain.
    fn withheld(self) -> Self {
        let (left, summary) = (self.findings.clone(), self.looked_at);
        Self { steps: Vec::new(), left, summary, ..self }
    }
}

/// Does the same as [`make_plan`], but keeps the steps if the device failed to read. For salvage, which uses `staging` and
/// writes nothing to the image.
///
/// # Errors
/// As [`make_plan`].
pub fn try_out(
    repairer: &dyn Repairer,
    staging: &Arc<Staging>,
    observer: &dyn Observer,
) -> Result<Plan> {
    // Checks the original image, because defects fixed by `begin` count as findings, too. If it cannot be checked, it
    // may become checkable later.
    let mut known = look(repairer, staging, observer).ok();
    let (first, looked_at) = known.clone().unwrap_or_default();
    first.iter().for_each(|finding| observer.found(finding.clone()));
    let finds_nothing =
        |(findings, summary): &(Vec<_>, Summary)| findings.is_empty() && summary.is_complete;
    repairer.begin(staging, known.as_ref().is_some_and(finds_nothing))?;
    staging.abandon();
    known.take_if(|_| staging.step_count() > 0);
    for round in 0.. {
        let (findings, summary) = match known.take() {
            Some(known) => known,
            None => look(repairer, staging, observer)?,
        };
        let is_done = findings.is_empty() || round == ROUNDS_MAX || observer.is_cancelled();
        let is_changed = !is_done && {
            let changed = repairer.repair(staging, &findings);
            staging.abandon();
            changed?
        };
        if is_changed {
            continue;
        }
        let checked = staging.step_count();
        if findings.is_empty() && summary.is_complete {
            repairer.finish(staging)?;
            staging.abandon();
        }
        let steps = staging.steps();
        let reads_failed = staging.reads_failed();
        return Ok(Plan {
            findings: first,
            looked_at,
            steps,
            left: findings,
            summary,
            is_result_checked: staging.step_count() == checked,
            reads_failed,
        });
    }
    unreachable!("the last round returns")
}

/// Checks the state in the staging and keeps the findings.
fn look(
    repairer: &dyn Repairer,
    staging: &Arc<Staging>,
    observer: &dyn Observer,
) -> Result<(Vec<Finding>, Summary)> {
    let keep = RecordingObserver { observer, findings: Mutex::default() };
    let summary = repairer.check(staging, &keep)?;
    Ok((keep.findings.into_inner(), summary))
}
