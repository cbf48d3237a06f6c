//! Conversion of single runs to rows.

use std::time::Duration;

use super::headline::headlines;
use super::summary::{Summary, median};
use super::{
    AgainstKernel, ExtraRow, Failed, Flatness, Measured, Overhead, Ratio, Row, Skipped, Workload,
};
use crate::contestant::{Description, Origin};
use crate::cost::Cost;
use crate::jobs::{Job, TimedStep};

/// One run.
pub(crate) struct Sample {
    /// Index of its contestant.
    pub(crate) contestant: usize,
    /// Size of its case.
    pub(crate) x: u64,
    /// Round, starting at 1.
    pub(crate) round: u32,
    /// Number of repetitions; the timings are those of one repetition.
    pub(crate) repeats: u32,
    /// Size of the file system in bytes.
    pub(crate) size_bytes: u64,
    /// Timed steps.
    pub(crate) steps: Vec<TimedStep>,
}

/// Returns a workload's part of a report.
pub(crate) fn workload(
    job: &dyn Job,
    contestants: Vec<Description>,
    samples: &[Sample],
    skipped: Vec<Skipped>,
    failed: Vec<Failed>,
) -> Workload {
    let mut rows = rows(&contestants, &samples.iter().collect::<Vec<_>>());
    add_overheads(&mut rows, &contestants);
    add_kernels(&mut rows, &contestants);
    let mut workload = Workload {
        name: job.name().to_owned(),
        what: job.what(),
        axis: job.axis().to_owned(),
        unit: job.unit().to_owned(),
        flatness: flatness(&rows),
        contestants,
        rows,
        skipped,
        failed,
        published: job.published(),
        headlines: Vec::new(),
    };
    workload.headlines = headlines(&workload, &job.headlines());
    workload
}

/// Returns whether a comparison of the report at one size is not significant yet: a contestant with its base, or one of
/// ours with the kernel's of the same format.
pub(crate) fn is_open(contestants: &[Description], samples: &[Sample], x: u64) -> bool {
    let samples: Vec<&Sample> = samples.iter().filter(|sample| sample.x == x).collect();
    let rows = rows(contestants, &samples);
    let is_pair = |one: &Row, other: &Row| {
        let find = |row: &Row| contestants.iter().find(|found| found.name == row.contestant);
        find(one).zip(find(other)).is_some_and(|(one, other)| {
            let sides = (one.side, other.side) == (Origin::Ours, Origin::Kernel);
            one.base.as_ref() == Some(&other.name) || (sides && one.format == other.format)
        })
    };
    let is_open = |one: &Row, other: &Row| {
        let rate = Ratio::paired(one, other, Measured::rate, one.rate_by(other));
        rate.is_some_and(|rate| !rate.is_told_apart)
    };
    rows.iter().any(|one| {
        let same_step = rows.iter().filter(|other| other.step == one.step);
        same_step.into_iter().any(|other| is_pair(one, other) && is_open(one, other))
    })
}

impl Row {
    /// Returns the ratio of this rate to another one.
    pub(super) fn rate_by(&self, other: &Self) -> Option<f64> {
        finite(self.rate? / other.rate?)
    }
}

/// Returns the distinct values of a list, in the order of their first occurrence.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn rows(contestants: &[Description], samples: &[&Sample]) -> Vec<Row> {
    let steps = distinct(samples.iter().flat_map(|one| &one.steps).map(|step| step.name));
    let sizes = distinct(samples.iter().map(|sample| sample.x));
    let mut rows = Vec::new();
    for step in steps {
        for &x in &sizes {
            for (place, contestant) in contestants.iter().enumerate() {
                let of_row = samples.iter().filter(|one| one.contestant == place && one.x == x);
                rows.extend(row(step, x, &contestant.name, &of_row.copied().collect::<Vec<_>>()));
            }
        }
    }
    rows
}

fn row(step: &str, x: u64, contestant: &str, samples: &[&Sample]) -> Option<Row> {
    let steps = samples.iter().flat_map(|sample| &sample.steps).filter(|found| found.name == step);
    let steps: Vec<&TimedStep> = steps.collect();
    let summary = |pick: fn(&Cost) -> Duration| {
        Summary::of(&steps.iter().map(|step| pick(&step.cost)).collect::<Vec<_>>())
    };
    let wall = summary(|cost| cost.wall)?;
    let counts: Vec<f64> = steps.iter().map(|step| step.operations as f64).collect();
    let operations = median(&counts)?;
    Some(Row {
        step: step.to_owned(),
        x,
        contestant: contestant.to_owned(),
        runs: wall.runs,
        operations: operations as u64,
        rate: finite(operations / wall.median_s),
        wall,
        user: summary(|cost| cost.user)?,
        system: summary(|cost| cost.system)?,
        extras: extras(&steps),
        overhead: None,
        kernel: None,
        size_bytes: samples.iter().map(|sample| sample.size_bytes).max()?,
        measured: samples.iter().filter_map(|sample| measured(sample, step)).collect(),
    })
}

fn measured(sample: &Sample, step: &str) -> Option<Measured> {
    let found = sample.steps.iter().find(|found| found.name == step)?;
    Some(Measured {
        round: sample.round,
        repeats: sample.repeats,
        operations: found.operations,
        wall_s: found.cost.wall.as_secs_f64(),
        user_s: found.cost.user.as_secs_f64(),
        system_s: found.cost.system.as_secs_f64(),
    })
}

fn extras(steps: &[&TimedStep]) -> Vec<ExtraRow> {
    let all = || steps.iter().flat_map(|step| &step.extras);
    let of = |(name, unit): (&str, &str)| {
        let values = all().filter(|extra| (extra.name, extra.unit) == (name, unit));
        let values: Vec<f64> = values.map(|extra| extra.value).collect();
        let median = median(&values).and_then(finite);
        ExtraRow { name: name.to_owned(), unit: unit.to_owned(), median }
    };
    distinct(all().map(|extra| (extra.name, extra.unit))).into_iter().map(of).collect()
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

fn add_overheads(rows: &mut [Row], contestants: &[Description]) {
    let base_of = |name: &str| {
        contestants.iter().find(|found| found.name == name).and_then(|found| found.base.clone())
    };
    let overheads: Vec<Option<Overhead>> = rows
        .iter()
        .map(|row| {
            let name = base_of(&row.contestant)?;
            let same = |other: &&Row| {
                (&other.step, other.x, &other.contestant) == (&row.step, row.x, &name)
            };
            rows.iter().find(same).map(|base| overhead(row, base))
        })
        .collect();
    for (row, overhead) in rows.iter_mut().zip(overheads) {
        row.overhead = overhead;
    }
}

fn add_kernels(rows: &mut [Row], contestants: &[Description]) {
    let all: Vec<_> = rows.iter().map(|row| against_kernel(row, rows, contestants)).collect();
    for (row, kernel) in rows.iter_mut().zip(all) {
        row.kernel = kernel;
    }
}

/// Compares one of ours with the kernel's of the same format: the one with the same settings, or the one closest to the
/// defaults.
fn against_kernel(row: &Row, rows: &[Row], contestants: &[Description]) -> Option<AgainstKernel> {
    let find = |row: &Row| contestants.iter().find(|found| found.name == row.contestant);
    let settings = |name: &str| name.split_once(':').map(|(_, settings)| settings.to_owned());
    let one = find(row).filter(|one| one.side == Origin::Ours)?;
    let of_kernel = |other: &&Row| {
        let is_its = find(other)
            .is_some_and(|other| other.side == Origin::Kernel && other.format == one.format);
        is_its && (&other.step, other.x) == (&row.step, row.x)
    };
    let other = rows.iter().filter(of_kernel).min_by_key(|other| {
        let has_others = settings(&other.contestant) != settings(&row.contestant);
        (has_others, find(other).map_or(u32::MAX, |found| found.deviations))
    })?;
    let rate = Ratio::paired(row, other, Measured::rate, row.rate_by(other))?;
    Some(AgainstKernel { contestant: other.contestant.clone(), rate })
}

fn overhead(row: &Row, base: &Row) -> Overhead {
    let percent = |of: fn(&Row) -> f64| finite((of(row) / of(base) - 1.0) * 100.0);
    let sure = |of: fn(&Row) -> f64, pick: fn(&Measured) -> f64| {
        Ratio::paired(row, base, pick, finite(of(row) / of(base)))
    };
    let processor = |row: &Row| row.user.median_s + row.system.median_s;
    Overhead {
        base: base.contestant.clone(),
        wall_percent: percent(|row| row.wall.median_s),
        user_percent: percent(|row| row.user.median_s),
        system_percent: percent(|row| row.system.median_s),
        processor_percent: percent(processor),
        wall: sure(|row| row.wall.median_s, |run| run.wall_s),
        user: sure(|row| row.user.median_s, |run| run.user_s),
        system: sure(|row| row.system.median_s, |run| run.system_s),
        processor: sure(processor, Measured::processor_s),
    }
}

fn flatness(rows: &[Row]) -> Vec<Flatness> {
    let keys = distinct(rows.iter().map(|row| (&row.step, &row.contestant)));
    let of = |(step, contestant)| {
        let curve = || rows.iter().filter(|row| (&row.step, &row.contestant) == (step, contestant));
        let small = curve().min_by_key(|row| row.x)?;
        let large = curve().max_by_key(|row| row.x)?;
        let ratio = large.rate_by(small);
        let flatness = Flatness {
            contestant: contestant.clone(),
            step: step.clone(),
            from: small.x,
            to: large.x,
            ratio,
            sure: Ratio::of_sizes(large, small, Measured::rate, ratio),
        };
        (small.x < large.x).then_some(flatness)
    };
    keys.into_iter().filter_map(of).collect()
}
