//! The workloads, each a [`Job`]: what it does, for which numbers of files or threads, and what of it
//! is timed.

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
pub use stress_orphan::StressOrphan;
pub use stress_unlink::StressUnlink;

use crate::contestant::{Need, Session};
use crate::cost::Cost;
use crate::error::{Error, Result};

/// A workload with its options.
pub trait Job {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it does and whose workload it was, in a few sentences, with the options that were chosen.
    fn what(&self) -> String;

    /// What [`Case::x`] counts: `files`, `threads`, `tasks`.
    fn axis(&self) -> &'static str;

    /// What a rate counts: `files/s`, `jobs/s`.
    fn unit(&self) -> &'static str;

    /// What is run, each case on a file system of its own.
    fn cases(&self) -> Vec<Case>;

    /// Runs a case. Only what the steps say is timed; that the result is right is checked outside of
    /// them.
    ///
    /// # Errors
    /// `Wrong` if the file system is not as it should be; others as they come.
    fn run(
        &self,
        case: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<Step>>;

    /// The figures of the thread that the workload is from; empty if there are none.
    fn published(&self) -> Vec<Published> {
        Vec::new()
    }

    /// The comparisons that it is about; empty if rates are all there is to say.
    fn headlines(&self) -> Vec<Headline> {
        Vec::new()
    }
}

/// One size of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The number that varies from case to case.
    pub x: u64,
    /// What it needs of a file system.
    pub need: Need,
    /// Calls of [`Context::advance`] add up to this.
    pub operations: u64,
    /// Most rounds that it is worth; large ones are run once.
    pub rounds_max: u32,
}

/// A part of a run that was timed.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name in tables: `create`, `remove`, `remove, cold cache`.
    pub name: &'static str,
    /// What a rate counts, how many of them there were.
    pub operations: u64,
    /// What it took.
    pub cost: Cost,
    /// What else was measured.
    pub extras: Vec<Extra>,
}

/// A figure beside the times.
#[derive(Clone, Debug)]
pub struct Extra {
    /// What it is.
    pub name: &'static str,
    /// Its unit, for tables: `ns/entry`.
    pub unit: &'static str,
    /// The figure.
    pub value: f64,
}

/// Figures that somebody published, on a machine of theirs.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Published {
    /// Who, when and on what.
    pub source: &'static str,
    /// Titles of the columns, that of `x` first.
    pub columns: Vec<&'static str>,
    /// The rows.
    pub rows: Vec<Vec<f64>>,
}

/// What a run is told, and whom it tells how far it is.
pub struct Context<'a> {
    /// What names and choices follow from.
    pub seed: u64,
    stop: &'a AtomicBool,
    progress: &'a (dyn Fn(u64) + Sync),
}

impl<'a> Context<'a> {
    /// `stop` ends the run soon after it is set; `progress` is told of operations that were done.
    pub fn new(seed: u64, stop: &'a AtomicBool, progress: &'a (dyn Fn(u64) + Sync)) -> Self {
        Self { seed, stop, progress }
    }

    /// Says that so many operations were done. To be called some thousand times in a run, not for each
    /// of them.
    ///
    /// # Errors
    /// `Interrupted` if the run is to end.
    pub fn advance(&self, operations: u64) -> Result<()> {
        (self.progress)(operations);
        if self.stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
    }
}
