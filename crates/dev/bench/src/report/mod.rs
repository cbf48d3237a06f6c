//! The report of a comparison, for people and for programs.
//!
//! The types here are a stable interface: their field names are those of the JSON.

mod everybody;
mod headline;
mod make;
mod number;
mod page;
mod plot;
mod ratio;
mod sides;
mod summary;
mod table;
mod tables;
mod text;

pub use headline::{HeadlineKind, HeadlineRow, HeadlineValue, Least};
pub use ratio::Ratio;
pub use summary::Summary;

pub(crate) use make::{Sample, is_open, workload};

use serde::Serialize;

use crate::contestant::Description;
use crate::jobs::Published;
use crate::machine::Machine;

/// Version of the JSON. It is incremented when a name is removed or changes its meaning.
pub const FORMAT: u32 = 1;

/// Statement about durability in every report.
pub const DURABILITY: &str =
    "Nothing is synced, unless the name of a step or the words about a workload say so.";

/// Statement about published figures in every report.
pub const OTHERS: &str =
    "Measured by others on another machine: only the shapes of the results are comparable.";

/// A complete comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this structure: [`FORMAT`].
    pub format: u32,
    /// Date of the comparison as text.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Seed of names and random choices.
    pub seed: u64,
    /// Number of runs of each case, fewer for large cases.
    pub rounds: u32,
    /// Maximum number of runs of each case: rounds are added until ratios are significant.
    pub rounds_most: u32,
    /// True if the program was built with optimisations. Otherwise its figures are meaningless.
    pub optimised: bool,
    /// True if it was cancelled.
    pub cut_short: bool,
    /// Statement about syncs: [`DURABILITY`].
    pub durability: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The workloads in the order of execution.
    pub workloads: Vec<Workload>,
}

/// A workload on all its contestants.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// Its name on the command line.
    pub name: String,
    /// Description, with the selected options.
    pub what: String,
    /// Unit of `x`: `files`, `threads`.
    pub axis: String,
    /// Unit of rates: `files/s`.
    pub unit: String,
    /// Contestants, in the order of the tables.
    pub contestants: Vec<Description>,
    /// Main comparisons, as far as their contestants took part.
    pub headlines: Vec<HeadlineRow>,
    /// Measurements, sorted by step, `x` and contestant.
    pub rows: Vec<Row>,
    /// Change of rates from the smallest `x` to the largest, for contestants with more than one.
    pub flatness: Vec<Flatness>,
    /// Contestants that did not take part, or only in the smaller cases.
    pub skipped: Vec<Skipped>,
    /// Failed runs, which have no rows.
    pub failed: Vec<Failed>,
    /// Published figures from other machines.
    pub published: Vec<Published>,
}

/// A step of a case on a contestant.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The timed step.
    pub step: String,
    /// Size of the case, in the workload's `axis`.
    pub x: u64,
    /// Name of the contestant.
    pub contestant: String,
    /// Number of runs.
    pub runs: usize,
    /// Operations of a run in the unit of rates; the median, if runs differ.
    pub operations: u64,
    /// Operations per second at the median wall-clock time. `None` if that is zero.
    pub rate: Option<f64>,
    /// Wall-clock time.
    pub wall: Summary,
    /// User time.
    pub user: Summary,
    /// System time, without kernel threads.
    pub system: Summary,
    /// Other measurements.
    pub extras: Vec<ExtraRow>,
    /// Overhead relative to the contestant's base in the same case.
    pub overhead: Option<Overhead>,
    /// For one of ours: the ratio to the rate of the kernel's of the same format.
    pub kernel: Option<AgainstKernel>,
    /// Size of the file system in bytes.
    pub size_bytes: u64,
    /// Single runs, in the order of rounds.
    pub measured: Vec<Measured>,
}

/// One run of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Round, starting at 1.
    pub round: u32,
    /// Number of repetitions to reach the minimum duration; the figures are those of one.
    pub repeats: u32,
    /// Number of operations, in the unit of rates.
    pub operations: u64,
    /// Wall-clock time.
    pub wall_s: f64,
    /// User time.
    pub user_s: f64,
    /// System time.
    pub system_s: f64,
}

impl Measured {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.wall_s
    }

    /// Returns user and system time together.
    pub(crate) fn processor_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// The median of a measurement other than time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtraRow {
    /// Name of the measurement.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The median. `None` if it is not a number.
    pub median: Option<f64>,
}

/// Additional time relative to the base, in per cent of the base's medians; negative if it was less, `None` if the base
/// took no time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overhead {
    /// Name of the base.
    pub base: String,
    /// Median wall-clock time.
    pub wall_percent: Option<f64>,
    /// Median user time.
    pub user_percent: Option<f64>,
    /// Median system time.
    pub system_percent: Option<f64>,
    /// Median processor time, user and system together.
    pub processor_percent: Option<f64>,
    /// Confidence of `wall_percent`.
    pub wall: Option<Ratio>,
    /// Confidence of `user_percent`.
    pub user: Option<Ratio>,
    /// Confidence of `system_percent`.
    pub system: Option<Ratio>,
    /// Confidence of `processor_percent`.
    pub processor: Option<Ratio>,
}

/// Ratio of our rate to the kernel's, for the same step and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgainstKernel {
    /// Name of the kernel's contestant: the one with the same settings, or the one closest to the defaults.
    pub contestant: String,
    /// The ratio of the rates.
    pub rate: Ratio,
}

/// Change of a contestant's rate with the size of the case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flatness {
    /// Name of the contestant.
    pub contestant: String,
    /// Step of the workload.
    pub step: String,
    /// Smallest `x`.
    pub from: u64,
    /// Largest `x`.
    pub to: u64,
    /// Ratio of the rate at the largest size to that at the smallest: 1 is flat, less is slower. `None` if one of them
    /// took no time.
    pub ratio: Option<f64>,
    /// Its confidence interval.
    pub sure: Option<Ratio>,
}

/// A contestant that could not take part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Skipped {
    /// Name of the contestant.
    pub contestant: String,
    /// The `x` of the first case that it could not run; later cases are skipped as well.
    pub from: u64,
    /// The reason.
    pub why: String,
}

/// A case that failed on a contestant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failed {
    /// Name of the contestant.
    pub contestant: String,
    /// The size of the case.
    pub x: u64,
    /// The failed run, starting at 1.
    pub round: u32,
    /// The error.
    pub why: String,
}

impl Report {
    /// Returns pretty-printed JSON with a final newline. A figure that is not a number is `null`.
    pub fn json(&self) -> String {
        // Strings, numbers and lists can always be serialised.
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }

    /// Returns aligned tables for a terminal.
    pub fn text(&self) -> String {
        text::text(self)
    }

    /// Returns the same tables in Markdown.
    pub fn markdown(&self) -> String {
        text::markdown(self)
    }

    /// Returns a self-contained HTML page without scripts.
    pub fn html(&self, title: &str) -> String {
        page::page(self, title)
    }

    /// Returns warnings about the reliability, to be shown before all tables.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.cut_short {
            warnings.push("Interrupted: the report has the results so far.".to_owned());
        }
        if !self.optimised {
            warnings.push("Not a release build: its results are not meaningful.".to_owned());
        }
        let failed: usize = self.workloads.iter().map(|workload| workload.failed.len()).sum();
        if failed > 0 {
            warnings.push(format!("Cases that failed: {failed}. See their workloads."));
        }
        warnings
    }

    /// Returns the conditions of the measurement.
    fn conditions(&self) -> Vec<String> {
        let mut lines = self.machine.lines();
        let runs = match (self.rounds, self.rounds_most) {
            (1, 1) => "one run of each case: ratios are not reliable".to_owned(),
            (rounds, most) if most > rounds => format!(
                "up to {rounds} interleaved runs of each case, and up to {most} while a difference \
                 is not significant; medians, with 95 % intervals of ratios"
            ),
            (rounds, _) => format!(
                "up to {rounds} interleaved runs of each case; medians, with 95 % intervals of \
                 ratios"
            ),
        };
        lines.push(format!("{runs}; seed {}", self.seed));
        lines.push(self.durability.to_owned());
        lines
    }
}
