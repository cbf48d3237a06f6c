//! The rounds of one workload.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{OperationCounter, Options, ScheduledJob, repeated};
use crate::contestant::Description;
use crate::error::{Error, Result};
use crate::jobs::{Case, Context};
use crate::report::{self, Failed, Sample, Skipped, Workload};

/// Outcome of the rounds.
pub(super) enum End {
    /// Everything possible was run.
    Done,
    /// The user cancelled.
    Interrupted,
}

/// The rounds of one workload, and their results so far.
pub(super) struct Turns<'a> {
    entry: &'a ScheduledJob,
    options: &'a Options,
    stop: &'a AtomicBool,
    progress: &'a OperationCounter<'a>,
    descriptions: Vec<Description>,
    /// Remaining cases.
    later: Vec<Case>,
    samples: Vec<Sample>,
    skipped: Vec<(usize, Skipped)>,
    failed: Vec<(usize, Failed)>,
}

fn rounds(case: &Case, options: &Options) -> u32 {
    options.rounds.min(case.rounds_max.max(1))
}

fn all_rounds(cases: &[Case], options: &Options) -> u64 {
    cases.iter().map(|case| case.operations * u64::from(rounds(case, options))).sum()
}

/// Returns the number of operations of a workload on all its contestants.
pub(super) fn operations(entry: &ScheduledJob, options: &Options) -> u64 {
    all_rounds(&entry.job.cases(), options) * entry.contestants.len() as u64
}

impl<'a> Turns<'a> {
    pub(super) fn new(
        entry: &'a ScheduledJob,
        options: &'a Options,
        stop: &'a AtomicBool,
        progress: &'a OperationCounter<'a>,
    ) -> Self {
        let mut later = entry.job.cases();
        later.reverse();
        Self {
            entry,
            options,
            stop,
            progress,
            descriptions: entry.contestants.iter().map(|one| one.describe()).collect(),
            later,
            samples: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// Runs all cases.
    pub(super) fn run(&mut self) -> End {
        // Continues from case to case, so that cases that run only once do not all start with the same contestant.
        let mut first = 0;
        while let Some(case) = self.later.pop() {
            let mut round = 0;
            while round < rounds(&case, self.options) || self.is_round_added(&case, round) {
                if matches!(self.round(&case, round, first), End::Interrupted) {
                    return End::Interrupted;
                }
                first += 1;
                round += 1;
            }
        }
        End::Done
    }

    /// Returns whether a case gets another round because a comparison is not significant yet.
    fn is_round_added(&self, case: &Case, done: u32) -> bool {
        let most = self.options.rounds_most.min(case.rounds_max.max(1));
        let contestants = 0..self.descriptions.len();
        let left = contestants.filter(|who| !self.is_out(*who, case)).count() as u64;
        if done >= most || left == 0 || !report::is_open(&self.descriptions, &self.samples, case.x)
        {
            return false;
        }
        self.progress.add(case.operations * left);
        true
    }

    /// Runs all contestants in turn.
    fn round(&mut self, case: &Case, round: u32, first: usize) -> End {
        let count = self.descriptions.len();
        for turn in 0..count {
            let who = (first + turn) % count;
            if self.is_out(who, case) {
                continue;
            }
            match self.once(who, case, round) {
                Ok(()) => {}
                Err(Error::Interrupted) => return End::Interrupted,
                Err(Error::Unsupported(why)) => self.skip(who, case, round, why),
                Err(error) => self.fail(who, case, round, error.to_string()),
            }
        }
        End::Done
    }

    fn is_out(&self, who: usize, case: &Case) -> bool {
        self.skipped.iter().any(|(out, _)| *out == who)
            || self.failed.iter().any(|(out, failed)| *out == who && failed.x == case.x)
    }

    fn once(&mut self, who: usize, case: &Case, round: u32) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        let (job, progress) = (&*self.entry.job, self.progress);
        let name = &self.descriptions[who].name;
        progress.observer().begin(job.name(), name, case.x, round + 1, case.operations);
        let before = progress.begin(case.operations);
        let advance = |operations| progress.advance(operations);
        let context = Context::new(self.options.seed, self.stop, &advance);
        let contestant = &*self.entry.contestants[who];
        let outcome = repeated(job, case, contestant, &context, self.options.step_least);
        progress.end(before, case.operations, outcome.is_ok());
        let (steps, repeats, size_bytes) = outcome?;
        let (contestant, round) = (who, round + 1);
        self.samples.push(Sample { contestant, x: case.x, round, repeats, size_bytes, steps });
        Ok(())
    }

    fn skip(&mut self, who: usize, case: &Case, round: u32, why: String) {
        let contestant = self.descriptions[who].name.clone();
        self.progress.observer().skipped(&contestant, &why);
        self.forget(who, case, round);
        self.progress.drop(all_rounds(&self.later, self.options));
        self.skipped.push((who, Skipped { contestant, from: case.x, why }));
    }

    fn fail(&mut self, who: usize, case: &Case, round: u32, why: String) {
        let contestant = self.descriptions[who].name.clone();
        self.progress.observer().failed(self.entry.job.name(), &contestant, case.x, &why);
        self.forget(who, case, round);
        self.failed.push((who, Failed { contestant, x: case.x, round: round + 1, why }));
    }

    /// Removes a case: figures of earlier rounds would hide the failure.
    fn forget(&mut self, who: usize, case: &Case, round: u32) {
        self.samples.retain(|sample| (sample.contestant, sample.x) != (who, case.x));
        let rounds_left = rounds(case, self.options).saturating_sub(round + 1);
        self.progress.drop(case.operations * u64::from(rounds_left));
    }

    /// Returns the workload's part of the report.
    pub(super) fn finish(self) -> Workload {
        let skipped = self.skipped.into_iter().map(|(_, skipped)| skipped).collect();
        let failed = self.failed.into_iter().map(|(_, failed)| failed).collect();
        report::workload(&*self.entry.job, self.descriptions, &self.samples, skipped, failed)
    }
}
