//! Running workloads on contestants in turn.

use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use crate::contestant::{Contestant, Session};
use crate::error::Result;
use crate::jobs::{Case, Context, Job, Step};

/// A workload, and who is to run it.
pub struct Entry {
    /// The workload.
    pub job: Box<dyn Job>,
    /// The contestants, in the order of the tables.
    pub contestants: Vec<Rc<dyn Contestant>>,
}

/// How a comparison is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs of each case on each contestant; the median counts.
    pub rounds: u32,
    /// What names and choices follow from.
    pub seed: u64,
    /// The command that was given, for the report.
    pub command: String,
}

/// Is told how a comparison goes.
pub trait Observer: Sync {
    /// A run begins, of so many operations.
    fn begin(&self, workload: &str, contestant: &str, x: u64, round: u32, operations: u64);
    /// Operations were done.
    fn advance(&self, operations: u64);
    /// A contestant cannot take part.
    fn skipped(&self, contestant: &str, why: &str);
}

/// Runs one case once on one contestant.
pub fn once(
    job: &dyn Job,
    case: &Case,
    contestant: &dyn Contestant,
    seed: u64,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Step>> {
    let mut session: Box<dyn Session> = contestant.start(&case.need)?;
    let steps = job.run(case, &mut *session, &Context::new(seed, stop, progress))?;
    session.finish()?;
    Ok(steps)
}
