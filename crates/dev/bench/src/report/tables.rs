//! The tables of a report.

use super::make::distinct;
use super::number::{NONE, count, count_of, plain, rate, seconds, share, short};
use super::sides::{Sides, sides};
use super::table::{ColumnKind, Table};
use super::{Flatness, Ratio, Report, Row, Workload};
use crate::jobs::Published;

const OVERHEADS: [&str; 4] = ["wall +", "user +", "system +", "u+s +"];

/// Returns every step with its figures.
pub(super) fn steps(workload: &Workload) -> Vec<(&str, Table)> {
    let steps = distinct(workload.rows.iter().map(|row| row.step.as_str()));
    steps.into_iter().map(|step| (step, self::step(workload, step))).collect()
}

fn step(workload: &Workload, step: &str) -> Table {
    let rows: Vec<&Row> = workload.rows.iter().filter(|row| row.step == step).collect();
    let extras =
        distinct(rows.iter().flat_map(|row| &row.extras).map(|one| (&one.name, &one.unit)));
    let has_overheads = rows.iter().any(|row| row.overhead.is_some());
    let figures = |titles: &[&str]| {
        titles.iter().map(|title| (ColumnKind::Figure, (*title).to_owned())).collect::<Vec<_>>()
    };
    let mut titles = figures(&[&workload.axis]);
    titles.push((ColumnKind::Contestant, "contestant".to_owned()));
    titles.extend(figures(&[
        "runs",
        "operations",
        &workload.unit,
        "wall s",
        "spread",
        "user s",
        "system s",
    ]));
    titles.extend(extras.iter().map(|(name, unit)| (ColumnKind::Figure, format!("{name} {unit}"))));
    if has_overheads {
        titles.extend(figures(&OVERHEADS));
    }
    let mut table = Table::new(titles);
    for row in rows {
        let mut cells = cells(row);
        for &(name, unit) in &extras {
            let extra = row.extras.iter().find(|one| (&one.name, &one.unit) == (name, unit));
            cells.push(extra.and_then(|one| one.median).map_or_else(|| NONE.to_owned(), plain));
        }
        if has_overheads {
            cells.extend(overheads(row));
        }
        table.rows.push(cells);
    }
    table.without_empty_columns()
}

fn cells(row: &Row) -> Vec<String> {
    vec![
        count(row.x),
        row.contestant.clone(),
        row.runs.to_string(),
        count(row.operations),
        row.rate.map_or_else(|| NONE.to_owned(), short),
        seconds(row.wall.median_s),
        // A single run has none.
        if row.runs > 1 { share(row.wall.spread) } else { NONE.to_owned() },
        seconds(row.user.median_s),
        seconds(row.system.median_s),
    ]
}

fn overheads(row: &Row) -> [String; 4] {
    row.overhead.as_ref().map_or_else(Default::default, |overhead| {
        [&overhead.wall, &overhead.user, &overhead.system, &overhead.processor]
            .map(|sure| sure.as_ref().map_or_else(|| NONE.to_owned(), Ratio::change))
    })
}

/// Returns a step in the form of the mailing-list threads: a line for each size, with time and rate of each contestant.
/// `None` for a single size.
pub(super) fn by_size(workload: &Workload, step: &str) -> Option<Table> {
    let rows: Vec<&Row> = workload.rows.iter().filter(|row| row.step == step).collect();
    let sizes = distinct(rows.iter().map(|row| row.x));
    let names = distinct(rows.iter().map(|row| row.contestant.as_str()));
    let mut table = Table::new([(ColumnKind::Figure, workload.axis.clone())]);
    table.titles.extend(names.iter().map(|name| (ColumnKind::FigureOf, (*name).to_owned())));
    for &x in &sizes {
        let cell = |name: &&str| {
            let row = rows.iter().find(|row| row.x == x && row.contestant == **name);
            row.map_or_else(
                || NONE.to_owned(),
                |row| {
                    let rate = row.rate.map_or_else(|| NONE.to_owned(), short);
                    format!("{} / {rate}", seconds(row.wall.median_s))
                },
            )
        };
        table.rows.push(std::iter::once(count(x)).chain(names.iter().map(cell)).collect());
    }
    (sizes.len() > 1).then_some(table)
}

/// Returns the contents of a cell of [`by_size`].
pub(super) fn by_size_caption(workload: &Workload, step: &str) -> String {
    format!("{step}: wall s / {}", workload.unit)
}

/// Describes the compared contestants; empty if there are none.
pub(super) fn bases(workload: &Workload) -> Vec<String> {
    let of = |row: &Row| {
        row.overhead
            .as_ref()
            .map(|overhead| format!("{} against {}", row.contestant, overhead.base))
    };
    distinct(workload.rows.iter().filter_map(of))
}

/// Returns the change of rates with the size for each step; `None` for a single size.
pub(super) fn flatness(workload: &Workload) -> Option<Table> {
    let all = &workload.flatness;
    let steps = distinct(all.iter().map(|one| &one.step));
    let mut table = Table::new([(ColumnKind::Contestant, "contestant".to_owned())]);
    let figures = ["from", "to"].into_iter().chain(steps.iter().map(|step| step.as_str()));
    table.titles.extend(figures.map(|title| (ColumnKind::Figure, title.to_owned())));
    for (contestant, from, to) in
        distinct(all.iter().map(|one| (&one.contestant, one.from, one.to)))
    {
        let cell = |step: &&String| {
            let is_it = |one: &&Flatness| {
                (&one.contestant, one.from, one.to, &one.step) == (contestant, from, to, *step)
            };
            all.iter().find(is_it).map_or_else(|| NONE.to_owned(), Flatness::shown)
        };
        let first = [contestant.clone(), count(from), count(to)];
        table.rows.push(first.into_iter().chain(steps.iter().map(cell)).collect());
    }
    (!table.rows.is_empty()).then_some(table)
}

/// Returns the caption of [`flatness`].
pub(super) fn flatness_caption(workload: &Workload) -> String {
    format!("flatness: rate at the largest / smallest number of {}", workload.axis)
}

/// Returns published figures.
pub(super) fn published(published: &Published) -> Table {
    let mut table =
        Table::new(published.columns.iter().map(|title| (ColumnKind::Figure, (*title).to_owned())));
    for row in &published.rows {
        let digits = |column| digits(published.rows.iter().filter_map(|row| row.get(column)));
        let exact = |(column, &value)| exact(value, digits(column));
        let mut cells: Vec<String> = row.iter().enumerate().map(exact).collect();
        cells.resize(table.titles.len(), String::new());
        table.rows.push(cells);
    }
    table
}

/// Returns the maximum number of decimals of published figures.
fn digits<'v>(values: impl Iterator<Item = &'v f64>) -> usize {
    let of = |value: &f64| value.to_string().split_once('.').map_or(0, |(_, digits)| digits.len());
    values.filter(|value| value.is_finite()).map(of).max().unwrap_or(0)
}

/// Formats a published figure with the number of decimals of its column.
fn exact(value: f64, digits: usize) -> String {
    if digits == 0 && (0.0..1e15).contains(&value) {
        count(value as u64)
    } else if value.is_finite() {
        format!("{value:.digits$}")
    } else {
        NONE.to_owned()
    }
}

/// Returns the summary of a report.
pub(super) fn summary(report: &Report) -> Table {
    let words = ["workload", "step", "at"].map(|title| (ColumnKind::Words, title.to_owned()));
    let mut table = Table::new(words);
    for (kind, title) in [
        (ColumnKind::Contestant, "ours"),
        (ColumnKind::Figure, "rate"),
        (ColumnKind::Contestant, "the kernel's"),
        (ColumnKind::Figure, "rate"),
        (ColumnKind::Figure, "ours / kernel's"),
        (ColumnKind::Figure, "flatness"),
        (ColumnKind::Figure, "kernel's"),
    ] {
        table.titles.push((kind, title.to_owned()));
    }
    table.rows.extend(sides(report).iter().map(side));
    table.without_empty_columns()
}

fn side(sides: &Sides<'_>) -> Vec<String> {
    let name =
        |row: Option<&Row>| row.map_or_else(|| NONE.to_owned(), |row| row.contestant.clone());
    let speed = |row: Option<&Row>| rate(row.and_then(|row| row.rate), &sides.workload.unit);
    let flatness = |row| sides.flatness(row).map_or_else(|| NONE.to_owned(), Flatness::shown);
    vec![
        sides.workload.name.clone(),
        sides.step.to_owned(),
        count_of(sides.x, &sides.workload.axis),
        name(sides.ours),
        speed(sides.ours),
        name(sides.kernel),
        speed(sides.kernel),
        sides.times().map_or_else(|| NONE.to_owned(), |ratio| ratio.times()),
        flatness(sides.ours),
        flatness(sides.kernel),
    ]
}
