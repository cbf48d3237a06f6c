//! From single runs to rows.

use std::time::Duration;

use super::headline::headlines;
use super::summary::{Summary, median};
use super::{ExtraRow, Failed, Flatness, Overhead, Row, Skipped, Workload};
use crate::contestant::Description;
use crate::cost::Cost;
use crate::jobs::{Job, Step};

/// One run.
pub(crate) struct Sample {
    /// The place of its contestant.
    pub(crate) contestant: usize,
    /// The size of its case.
    pub(crate) x: u64,
    /// Size of the file system in bytes.
    pub(crate) size_bytes: u64,
    /// What was timed.
    pub(crate) steps: Vec<Step>,
}

/// A workload's part of a report.
pub(crate) fn workload(
    job: &dyn Job,
    contestants: Vec<Description>,
    samples: &[Sample],
    skipped: Vec<Skipped>,
    failed: Vec<Failed>,
) -> Workload {
    let mut rows = rows(&contestants, samples);
    add_overheads(&mut rows, &contestants);
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

/// The values of a list without repetitions, in the order in which they come first.
pub(super) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

fn rows(contestants: &[Description], samples: &[Sample]) -> Vec<Row> {
    let steps = distinct(samples.iter().flat_map(|sample| &sample.steps).map(|step| step.name));
    let sizes = distinct(samples.iter().map(|sample| sample.x));
    let mut rows = Vec::new();
    for step in steps {
        for &x in &sizes {
            for (place, contestant) in contestants.iter().enumerate() {
                let of_row = samples.iter().filter(|one| one.contestant == place && one.x == x);
                rows.extend(row(step, x, &contestant.name, &of_row.collect::<Vec<_>>()));
            }
        }
    }
    rows
}

fn row(step: &str, x: u64, contestant: &str, samples: &[&Sample]) -> Option<Row> {
    let steps = samples.iter().flat_map(|sample| &sample.steps).filter(|found| found.name == step);
    let steps: Vec<&Step> = steps.collect();
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
        size_bytes: samples.iter().map(|sample| sample.size_bytes).max()?,
    })
}

fn extras(steps: &[&Step]) -> Vec<ExtraRow> {
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

fn overhead(row: &Row, base: &Row) -> Overhead {
    let percent = |of: fn(&Row) -> f64| finite((of(row) / of(base) - 1.0) * 100.0);
    Overhead {
        base: base.contestant.clone(),
        wall_percent: percent(|row| row.wall.median_s),
        user_percent: percent(|row| row.user.median_s),
        system_percent: percent(|row| row.system.median_s),
        processor_percent: percent(|row| row.user.median_s + row.system.median_s),
    }
}

fn flatness(rows: &[Row]) -> Vec<Flatness> {
    let keys = distinct(rows.iter().map(|row| (&row.step, &row.contestant)));
    let of = |(step, contestant)| {
        let curve = || rows.iter().filter(|row| (&row.step, &row.contestant) == (step, contestant));
        let small = curve().min_by_key(|row| row.x)?;
        let large = curve().max_by_key(|row| row.x)?;
        let ratio = small.rate.zip(large.rate).and_then(|(from, to)| finite(to / from));
        let flatness = Flatness {
            contestant: contestant.clone(),
            step: step.clone(),
            from: small.x,
            to: large.x,
            ratio,
        };
        (small.x < large.x).then_some(flatness)
    };
    keys.into_iter().filter_map(of).collect()
}
