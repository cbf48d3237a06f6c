//! The main figures of a workload.

use serde::Serialize;

use super::make::distinct;
use super::number::{change, count_of, times};
use super::{Measured, Ratio, Row, Workload};
use crate::contestant::{Description, Origin};
use crate::jobs::{Headline, Measure, Theirs};

/// A comparison that a report shows before its tables.
#[derive(Clone, Debug, Serialize)]
pub struct HeadlineRow {
    /// Name of the comparison.
    pub name: String,
    /// Step of the workload.
    pub step: String,
    /// Kind of its ratios.
    pub kind: HeadlineKind,
    /// Measured values; never empty.
    pub values: Vec<HeadlineValue>,
    /// The same ratio in the thread that the workload comes from.
    pub theirs: Vec<Theirs>,
}

/// Kind of ratios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadlineKind {
    /// Rates at two sizes: 1 means flat.
    Flatness,
    /// Rates: more is faster.
    Rates,
    /// Processor times: more is more expensive.
    Processor,
}

/// A ratio of one contestant.
#[derive(Clone, Debug, Serialize)]
pub struct HeadlineValue {
    /// Name of the contestant.
    pub contestant: String,
    /// The contestant whose figure is the divisor; `None` if it is the same contestant at the size `from`.
    pub against: Option<String>,
    /// The smallest size, for flatness only.
    pub from: Option<u64>,
    /// The size of the ratio: the largest.
    pub x: u64,
    /// The ratio.
    pub ratio: f64,
    /// Its confidence interval.
    pub sure: Option<Ratio>,
    /// The minimum ratio from some size on, if there are several sizes.
    pub least: Option<Least>,
}

/// The minimum of several ratios.
#[derive(Clone, Debug, Serialize)]
pub struct Least {
    /// First size of the range.
    pub from: u64,
    /// The ratio.
    pub ratio: f64,
}

/// Returns the headlines of a workload whose rows and flatness are known.
pub(super) fn headlines(workload: &Workload, asked: &[Headline]) -> Vec<HeadlineRow> {
    let of = |headline: &Headline| {
        let (kind, values) = match headline.measure {
            Measure::Flatness => (HeadlineKind::Flatness, flat(workload, headline.step)),
            Measure::Rates { with, without, least_from } => {
                let pairs = Pairs { workload, step: headline.step, with, without };
                let values = pairs.values(|row| row.rate, Measured::rate, least_from);
                (HeadlineKind::Rates, values)
            }
            Measure::Processor { with, without } => {
                let pairs = Pairs { workload, step: headline.step, with, without };
                let processor = |row: &Row| Some(row.user.median_s + row.system.median_s);
                let values = pairs.values(processor, Measured::processor_s, None);
                (HeadlineKind::Processor, values)
            }
        };
        let row = HeadlineRow {
            name: headline.name.to_owned(),
            step: headline.step.to_owned(),
            kind,
            values,
            theirs: headline.theirs.clone(),
        };
        (!row.values.is_empty()).then_some(row)
    };
    asked.iter().filter_map(of).collect()
}

/// For contestants with default settings.
fn flat(workload: &Workload, step: &str) -> Vec<HeadlineValue> {
    let is_usual = |name: &str| {
        let mut all = workload.contestants.iter();
        all.any(|one| one.name == name && one.deviations == 0 && one.side != Origin::Other)
    };
    let of_step = workload.flatness.iter().filter(|one| one.step == step);
    let value = |one: &super::Flatness| {
        Some(HeadlineValue {
            contestant: one.contestant.clone(),
            against: None,
            from: Some(one.from),
            x: one.to,
            ratio: one.ratio?,
            sure: one.sure,
            least: None,
        })
    };
    of_step.filter(|one| is_usual(&one.contestant)).filter_map(value).collect()
}

/// Contestants that differ in one setting.
struct Pairs<'a> {
    workload: &'a Workload,
    step: &'a str,
    with: &'a str,
    without: &'a str,
}

impl Pairs<'_> {
    fn values(
        &self,
        figure: impl Fn(&Row) -> Option<f64>,
        pick: impl Fn(&Measured) -> f64,
        least_from: Option<u64>,
    ) -> Vec<HeadlineValue> {
        let value = |one: &Description| {
            let other = self.other(&one.name)?;
            let ratios = self.ratios(&one.name, other, &figure);
            let &(x, ratio) = ratios.last()?;
            let least = least_from.and_then(|from| least(&ratios, from));
            let row = |name| self.row(name, x);
            let sure = Ratio::paired(row(&one.name)?, row(other)?, &pick, Some(ratio));
            let (contestant, against) = (one.name.clone(), Some(other.to_owned()));
            Some(HeadlineValue { contestant, against, from: None, x, ratio, sure, least })
        };
        self.workload.contestants.iter().filter_map(value).collect()
    }

    fn row(&self, name: &str, x: u64) -> Option<&Row> {
        let is_it = |row: &&Row| (&*row.step, &*row.contestant, row.x) == (self.step, name, x);
        self.workload.rows.iter().find(is_it)
    }

    /// Returns the name of the contestant without the setting.
    fn other(&self, name: &str) -> Option<&str> {
        let settings = || name.split(',').skip(1);
        settings().find(|setting| *setting == self.with)?;
        let swap = |part| if part == self.with { self.without } else { part };
        let name = name.split(',').map(swap).collect::<Vec<_>>().join(",");
        let mut all = self.workload.contestants.iter();
        all.find(|one| one.name == name).map(|one| one.name.as_str())
    }

    /// Returns the ratios by ascending size.
    fn ratios(
        &self,
        one: &str,
        other: &str,
        figure: impl Fn(&Row) -> Option<f64>,
    ) -> Vec<(u64, f64)> {
        let rows = self.workload.rows.iter().filter(|row| row.step == self.step);
        let at = |name: &str, x| self.row(name, x).and_then(&figure);
        let mut sizes = distinct(rows.map(|row| row.x));
        sizes.sort_unstable();
        let ratio = |x| {
            let ratio = at(one, x)? / at(other, x)?;
            ratio.is_finite().then_some((x, ratio))
        };
        sizes.into_iter().filter_map(ratio).collect()
    }
}

fn least(ratios: &[(u64, f64)], from: u64) -> Option<Least> {
    let many: Vec<f64> = ratios.iter().filter(|(x, _)| *x >= from).map(|(_, r)| *r).collect();
    let ratio = many.iter().copied().fold(f64::INFINITY, f64::min);
    (many.len() > 1).then_some(Least { from, ratio })
}

impl HeadlineRow {
    /// Formats a ratio of this kind.
    pub(super) fn shown(&self, ratio: f64) -> String {
        match self.kind {
            HeadlineKind::Flatness => format!("{ratio:.2}"),
            HeadlineKind::Rates => times(Some(ratio)),
            HeadlineKind::Processor => change(Some((ratio - 1.0) * 100.0)),
        }
    }

    /// Formats a ratio with its confidence interval.
    pub(super) fn shown_value(&self, value: &HeadlineValue) -> String {
        let unsure = || self.shown(value.ratio);
        value.sure.as_ref().map_or_else(unsure, |sure| sure.shown(|ratio| self.shown(ratio)))
    }

    /// Formats the sizes of a ratio, and its minimum.
    pub(super) fn where_(&self, value: &HeadlineValue, axis: &str) -> String {
        let mut text = match value.from {
            Some(from) => format!("{} by {}", count_of(value.x, axis), count_of(from, axis)),
            None => format!("at {}", count_of(value.x, axis)),
        };
        if let Some(least) = &value.least {
            let (ratio, from) = (self.shown(least.ratio), count_of(least.from, axis));
            text += &format!(", at least {ratio} from {from}");
        }
        text
    }

    /// Formats the published figures; `None` if there are none.
    pub(super) fn thread(&self) -> Option<String> {
        let one = |theirs: &Theirs| format!("{} ({})", self.shown(theirs.ratio), theirs.about);
        let all: Vec<String> = self.theirs.iter().map(one).collect();
        (!all.is_empty()).then(|| format!("the thread's: {}", all.join(", ")))
    }
}
