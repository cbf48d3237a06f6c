//! Execution of workloads on contestants in turn.

mod progress;
mod turns;

use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::contestant::{Contestant, Session};
use crate::error::{Error, Result};
use crate::jobs::{Case, Context, Job, TimedStep};
use crate::machine::Machine;
use crate::report::{DURABILITY, FORMAT, Report};
use progress::OperationCounter;
use turns::{End, Turns};

/// A workload with its contestants.
pub struct ScheduledJob {
    /// The workload.
    pub job: Box<dyn Job>,
    /// The contestants, in the order of the tables.
    pub contestants: Vec<Rc<dyn Contestant>>,
}

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of runs of each case on each contestant; the median counts.
    pub rounds: u32,
    /// Maximum number of rounds: they are added while a comparison of the report is not significant.
    pub rounds_most: u32,
    /// A run is repeated within its round until each of its steps has this total duration.
    pub step_least: Duration,
    /// Seed of names and random choices.
    pub seed: u64,
    /// The command line, for the report.
    pub command: String,
    /// The date as text, for the report.
    pub date: String,
    /// The machine in its state before the start.
    pub machine: Machine,
}

/// Receives the progress of a comparison.
pub trait Observer: Sync {
    /// Receives the total number of operations, including completed ones. Called at the start, and whenever it
    /// decreases because some are cancelled.
    fn total(&self, operations: u64) {
        let _ = operations;
    }
    /// Called when a run begins, with its number of operations. The contestant is prepared first, which may take a
    /// while.
    fn begin(&self, workload: &str, contestant: &str, x: u64, round: u32, operations: u64);
    /// Called when operations are completed.
    fn advance(&self, operations: u64);
    /// Called once for each workload if a contestant cannot take part.
    fn skipped(&self, contestant: &str, why: &str);
    /// Called when a run failed; the contestant skips this case.
    fn failed(&self, workload: &str, contestant: &str, x: u64, why: &str) {
        let _ = (workload, contestant, x, why);
    }
}

/// Runs every workload on its contestants: each case round by round, in each round all contestants in turn, with
/// another one first each time.
///
/// A contestant that cannot take part, and a case that fails, are listed in the report with the reason, and the others
/// continue. After `stop` is set, the report contains the completed part.
///
/// # Errors
/// `Unsupported` if there is nothing to run.
pub fn run(
    entries: &[ScheduledJob],
    options: &Options,
    stop: &AtomicBool,
    observer: &dyn Observer,
) -> Result<Report> {
    let planned = entries.iter().map(|entry| turns::operations(entry, options)).sum();
    let anything =
        entries.iter().any(|one| !one.contestants.is_empty() && !one.job.cases().is_empty());
    if options.rounds == 0 || !anything {
        return Err(Error::Unsupported("there is nothing to run".to_owned()));
    }
    let progress = OperationCounter::new(observer, planned);
    let mut report = Report {
        format: FORMAT,
        date: options.date.clone(),
        command: options.command.clone(),
        seed: options.seed,
        rounds: options.rounds,
        rounds_most: options.rounds_most.max(options.rounds),
        optimised: !cfg!(debug_assertions),
        cut_short: false,
        durability: DURABILITY,
        machine: options.machine.clone(),
        workloads: Vec::new(),
    };
    for entry in entries {
        let mut turns = Turns::new(entry, options, stop, &progress);
        let end = turns.run();
        report.workloads.push(turns.finish());
        if matches!(end, End::Interrupted) {
            report.cut_short = true;
            break;
        }
    }
    Ok(report)
}

/// Runs one case once on one contestant.
pub fn once(
    job: &dyn Job,
    case: &Case,
    contestant: &dyn Contestant,
    seed: u64,
    stop: &AtomicBool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<TimedStep>> {
    sized(job, case, contestant, &Context::new(seed, stop, progress)).map(|(steps, _)| steps)
}

/// Maximum number of repetitions of a run within a round.
const REPEATS_MAX: u32 = 64;

/// Repetition ends when the total time, including preparation, exceeds the required time of the steps by this factor.
const ALL_BY_STEPS_MAX: u32 = 8;

/// Repeats a run until its steps took `least`. Returns the figures of one repetition, the number of repetitions, and
/// the size of the file system. Each repetition is prepared from the start.
fn repeated(
    job: &dyn Job,
    case: &Case,
    contestant: &dyn Contestant,
    context: &Context<'_>,
    least: Duration,
) -> Result<(Vec<TimedStep>, u32, u64)> {
    let start = Instant::now();
    let (mut steps, size) = sized(job, case, contestant, context)?;
    let mut repeats = 1;
    while repeats < REPEATS_MAX
        && steps.iter().any(|step| step.cost.wall < least)
        && start.elapsed() < least * ALL_BY_STEPS_MAX
    {
        let (again, _) = sized(job, case, contestant, context)?;
        if !add_all(&mut steps, &again) {
            return Err(Error::Wrong("repeated, a run has other steps".to_owned()));
        }
        repeats += 1;
    }
    let mean = |mut step: TimedStep| {
        step.cost = step.cost.divided(repeats);
        step.operations /= u64::from(repeats);
        step.extras.iter_mut().for_each(|extra| extra.value /= f64::from(repeats));
        step
    };
    Ok((steps.into_iter().map(mean).collect(), repeats, size))
}

/// Adds the figures of a run to those of others. Returns whether its steps are the same.
fn add_all(steps: &mut [TimedStep], again: &[TimedStep]) -> bool {
    let add = |(step, again): (&mut TimedStep, &TimedStep)| {
        step.operations += again.operations;
        step.cost += again.cost;
        let extras = step.extras.iter_mut().zip(&again.extras);
        extras.for_each(|(extra, again)| extra.value += again.value);
        step.name == again.name && step.extras.len() == again.extras.len()
    };
    steps.len() == again.len()
        && steps.iter_mut().zip(again).map(add).fold(true, |all, one| all & one)
}

/// Runs once. Returns the steps, and the size of the file system.
fn sized(
    job: &dyn Job,
    case: &Case,
    contestant: &dyn Contestant,
    context: &Context<'_>,
) -> Result<(Vec<TimedStep>, u64)> {
    let mut session: Box<dyn Session> = contestant.start(&case.need)?;
    let steps = job.run(case, &mut *session, context)?;
    let size = session.size();
    session.finish()?;
    Ok((steps, size))
}
