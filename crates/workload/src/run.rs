//! Running workloads on contestants in turn.

mod progress;
mod turns;

use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::contestant::{Contestant, Session};
use crate::error::{Error, Result};
use crate::jobs::{Case, Context, Job, Step};
use crate::machine::Machine;
use crate::report::{DURABILITY, FORMAT, Report};
use progress::Progress;
use turns::{End, Turns};

/// A workload, and its contestants.
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
    /// Rounds are added up to this many while something that the report compares is not told apart.
    pub rounds_most: u32,
    /// A run is repeated within its round until each of its steps took so long in all.
    pub step_least: Duration,
    /// What names and choices follow from.
    pub seed: u64,
    /// The command that was given, for the report.
    pub command: String,
    /// When it is made, in words, for the report.
    pub date: String,
    /// Where it is made, as it was before the start.
    pub machine: Machine,
}

/// Is told how a comparison goes.
pub trait Observer: Sync {
    /// How many operations there are in all, done ones included. Told at the start, and again whenever
    /// it changes because some will not be done.
    fn total(&self, operations: u64) {
        let _ = operations;
    }
    /// A run begins, of so many operations. The contestant is made ready first, which may take a while.
    fn begin(&self, workload: &str, contestant: &str, x: u64, round: u32, operations: u64);
    /// Operations were done.
    fn advance(&self, operations: u64);
    /// A contestant cannot take part. Told once for each workload.
    fn skipped(&self, contestant: &str, why: &str);
    /// A run went wrong; this contestant is done with this case.
    fn failed(&self, workload: &str, contestant: &str, x: u64, why: &str) {
        let _ = (workload, contestant, x, why);
    }
}

/// Runs every workload on its contestants: each case round by round, in each round all contestants in
/// turn, beginning with another one each time.
///
/// A contestant that cannot take part, and a case that fails, stand in the report with the reason while
/// the others go on. Once `stop` is set, the report is of what was done until then.
///
/// # Errors
/// `Unsupported` if there is nothing to run.
pub fn run(
    entries: &[Entry],
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
    let progress = Progress::new(observer, planned);
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
) -> Result<Vec<Step>> {
    sized(job, case, contestant, &Context::new(seed, stop, progress)).map(|(steps, _)| steps)
}

/// Most repetitions of a run within a round.
const REPEATS_MAX: u32 = 64;

/// A run is not repeated any more when what it takes in all, made ready included, is so many times what its
/// steps should take.
const ALL_BY_STEPS_MAX: u32 = 8;

/// What a run says that is repeated until its steps took `least`: figures of one time, how many times there
/// were, and the size of the file system. Each time is made ready from the start.
fn repeated(
    job: &dyn Job,
    case: &Case,
    contestant: &dyn Contestant,
    context: &Context<'_>,
    least: Duration,
) -> Result<(Vec<Step>, u32, u64)> {
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
    let mean = |mut step: Step| {
        step.cost = step.cost.divided(repeats);
        step.operations /= u64::from(repeats);
        step.extras.iter_mut().for_each(|extra| extra.value /= f64::from(repeats));
        step
    };
    Ok((steps.into_iter().map(mean).collect(), repeats, size))
}

/// Adds the figures of a run to those of others; whether its steps are the same.
fn add_all(steps: &mut [Step], again: &[Step]) -> bool {
    let add = |(step, again): (&mut Step, &Step)| {
        step.operations += again.operations;
        step.cost += again.cost;
        let extras = step.extras.iter_mut().zip(&again.extras);
        extras.for_each(|(extra, again)| extra.value += again.value);
        step.name == again.name && step.extras.len() == again.extras.len()
    };
    steps.len() == again.len()
        && steps.iter_mut().zip(again).map(add).fold(true, |all, one| all & one)
}

/// What one run says, and the size of the file system it was on.
fn sized(
    job: &dyn Job,
    case: &Case,
    contestant: &dyn Contestant,
    context: &Context<'_>,
) -> Result<(Vec<Step>, u64)> {
    let mut session: Box<dyn Session> = contestant.start(&case.need)?;
    let steps = job.run(case, &mut *session, context)?;
    let size = session.size();
    session.finish()?;
    Ok((steps, size))
}
