//! The workloads, each a [`Job`]: its operations, its sizes (files or threads), and its timed steps.

mod change;
mod create;
mod fill;
mod find;
mod fingerprint;
mod fs_mark;
mod fserver;
mod headline;
mod names;
mod removal;
mod remove;
mod repeats;
mod stress_orphan;
mod stress_unlink;
mod threads;
mod together;

use std::sync::atomic::{AtomicBool, Ordering};

pub use change::Change;
pub use create::Create;
pub use find::{Find, FindTree};
pub use fs_mark::FsMark;
pub use fserver::Fserver;
pub use headline::{Headline, Measure, Theirs};
pub use remove::Remove;
pub use repeats::FILES_PER_STEP;
pub use stress_orphan::StressOrphan;
pub use stress_unlink::StressUnlink;

use crate::contestant::{Need, Session};
use crate::cost::Cost;
use crate::error::{Error, Result};

/// A workload with its options.
pub trait Job {
    /// Returns its name on the command line.
    fn name(&self) -> &'static str;

    /// Returns its description and origin in a few sentences, with the selected options.
    fn what(&self) -> String;

    /// Returns the unit of [`Case::x`]: `files`, `threads`, `tasks`.
    fn axis(&self) -> &'static str;

    /// Returns the unit of rates: `files/s`, `jobs/s`.
    fn unit(&self) -> &'static str;

    /// Returns the cases, each of which runs on a new file system.
    fn cases(&self) -> Vec<Case>;

    /// Runs a case. Only the steps are timed; the result is checked outside of them.
    ///
    /// # Errors
    /// `Wrong` if the state of the file system is wrong; others as they occur.
    fn run(
        &self,
        case: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>>;

    /// Returns the figures of the thread that the workload comes from; empty if there are none.
    fn published(&self) -> Vec<Published> {
        Vec::new()
    }

    /// Returns the main comparisons; empty if the rates are sufficient.
    fn headlines(&self) -> Vec<Headline> {
        Vec::new()
    }
}

/// One size of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The number that varies between cases.
    pub x: u64,
    /// Requirements for the file system.
    pub need: Need,
    /// Sum of all calls of [`Context::advance`].
    pub operations: u64,
    /// Maximum number of rounds; large cases run once.
    pub rounds_max: u32,
}

/// A timed part of a run.
#[derive(Clone, Debug)]
pub struct TimedStep {
    /// Name in tables: `create`, `remove`, `remove, cold cache`.
    pub name: &'static str,
    /// Number of operations, in the unit of rates.
    pub operations: u64,
    /// Cost of the step.
    pub cost: Cost,
    /// Other measurements.
    pub extras: Vec<Extra>,
}

/// A measurement other than time.
#[derive(Clone, Debug)]
pub struct Extra {
    /// Name of the measurement.
    pub name: &'static str,
    /// Unit for tables: `ns/entry`.
    pub unit: &'static str,
    /// Value.
    pub value: f64,
}

/// Published figures from another machine.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Published {
    /// Author, date and machine.
    pub source: &'static str,
    /// Titles of the columns, that of `x` first.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<f64>>,
}

/// Input of a run, and its progress and cancellation.
pub struct Context<'a> {
    /// Seed of names and random choices.
    pub seed: u64,
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> Context<'a> {
    /// `stop` cancels the run soon after it is set; `progress` is called with the number of completed operations.
    pub fn new(seed: u64, stop: &'a AtomicBool, progress: &'a (dyn Fn(u64) + Sync)) -> Self {
        Self { seed, stop, progress }
    }

    /// Reports completed operations. To be called a few thousand times in a run, not for each operation.
    ///
    /// # Errors
    /// `Interrupted` if the run is cancelled.
    pub fn advance(&self, operations: u64) -> Result<()> {
        (self.progress)(operations);
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}
