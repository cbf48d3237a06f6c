//! Trying a repair out until nothing is found any more.

use std::ops::Range;
use std::sync::Arc;

use blockdev::BlockDevice;
use check::{Finding, Observer, Phase, Summary};
use parking_lot::Mutex;
use vfs::Result;

use crate::{Staging, Step};

/// Most findings of one round that are kept. What is not kept is found again in the next round.
const FINDINGS_MAX: usize = 200_000;
/// Most rounds of checking and mending.
const ROUNDS_MAX: u32 = 64;

/// What a format does for a repair. All changes go into a staging, in steps.
pub trait Repairer: Sync {
    /// Brings the image to where it can be checked: with a superblock, and with what its journal or log holds replayed.
    /// A log that cannot be replayed is emptied, after as much of it as can be replayed was.
    ///
    /// `is_sound` says that the check finds nothing: then nothing is chosen anew, and only what is pending gets to its
    /// place.
    ///
    /// # Errors
    /// `Unsupported` if the image has features that are not known; `Corrupt` if there is nothing to begin with.
    fn begin(&self, staging: &Arc<Staging>, is_sound: bool) -> Result<()>;

    /// Checks what is in the staging.
    ///
    /// # Errors
    /// As the format's check.
    fn check(&self, staging: &Arc<Staging>, observer: &dyn Observer) -> Result<Summary>;

    /// Mends what must be mended first of what was found. Returns whether anything was changed.
    ///
    /// # Errors
    /// If the device fails. Whatever cannot be mended is no error.
    fn mend(&self, staging: &Arc<Staging>, findings: &[Finding]) -> Result<bool>;

    /// Takes back marks that say that the image is damaged, now that the check finds nothing.
    ///
    /// # Errors
    /// If the device fails.
    fn finish(&self, staging: &Arc<Staging>) -> Result<()>;

    /// Bytes of a sound image that change whenever the image is changed by anybody.
    fn witnesses(&self, device: &dyn BlockDevice) -> Vec<Range<u64>>;
}

/// What a repair would do.
pub struct Plan {
    /// What a check of the image as it is finds.
    pub findings: Vec<Finding>,
    /// What that check looked at.
    pub looked_at: Summary,
    /// What would be changed, in this order.
    pub steps: Vec<Step>,
    /// What the check finds in an image that was changed so: nothing, if all could be repaired.
    pub left: Vec<Finding>,
    /// What the last check looked at.
    pub summary: Summary,
    /// Number of failed reads within the image while the plan was made.
    pub reads_failed: u64,
}

/// Keeps findings and passes on the rest.
struct Keep<'o> {
    observer: &'o dyn Observer,
    findings: Mutex<Vec<Finding>>,
}

impl Observer for Keep<'_> {
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

/// Tries out how an image can be repaired, in `staging`. `observer` is told of what the first check finds, and of all
/// progress. Nothing is written to the image.
///
/// A plan has no steps if the device failed to read: a conclusion from such a read may be false.
///
/// # Errors
/// As the methods of `repairer`. If the observer cancels, the plan has what was done until then.
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
    // As the image is: what it takes to begin is damage, too. One that cannot be checked may be so afterwards.
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
            let changed = repairer.mend(staging, &findings);
            staging.abandon();
            changed?
        };
        if is_changed {
            continue;
        }
        if findings.is_empty() && summary.is_complete {
            repairer.finish(staging)?;
            staging.abandon();
        }
        let steps = staging.steps();
        let reads_failed = staging.reads_failed();
        return Ok(Plan { findings: first, looked_at, steps, left: findings, summary, reads_failed });
    }
    unreachable!("rounds are limited")
}

/// Checks what is in the staging, and keeps what is found.
fn look(
    repairer: &dyn Repairer,
    staging: &Arc<Staging>,
    observer: &dyn Observer,
) -> Result<(Vec<Finding>, Summary)> {
    let keep = Keep { observer, findings: Mutex::default() };
    let summary = repairer.check(staging, &keep)?;
    Ok((keep.findings.into_inner(), summary))
}
