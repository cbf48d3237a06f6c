//! What a comparison found, for people and for programs.
//!
//! The types here are an interface: their field names are those of the JSON, and stay.

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

/// The version of the JSON. It grows when a name goes or changes its meaning.
pub const FORMAT: u32 = 1;

/// What every report says about durability.
pub const DURABILITY: &str =
    "Nothing is synced, unless the name of a step or the words about a workload say so.";

/// What every report says about the figures that others published.
pub const OTHERS: &str =
    "Measured by others, on another machine: only the shapes can be held against the tables here.";

/// A whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this structure: [`FORMAT`].
    pub format: u32,
    /// When it was made, in words.
    pub date: String,
    /// The command that made it.
    pub command: String,
    /// What names and choices followed from.
    pub seed: u64,
    /// Runs of each case, fewer where a case is large.
    pub rounds: u32,
    /// Most runs of each case: rounds were added while ratios were not told apart.
    pub rounds_most: u32,
    /// The program was built with optimisations. Without, its figures mean little.
    pub optimised: bool,
    /// It was ended before all was run.
    pub cut_short: bool,
    /// What was synced: [`DURABILITY`].
    pub durability: &'static str,
    /// Where it was made.
    pub machine: Machine,
    /// The workloads in the order in which they were run.
    pub workloads: Vec<Workload>,
}

/// A workload on all its contestants.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// Its name on the command line.
    pub name: String,
    /// What it does, with the options that were chosen.
    pub what: String,
    /// What `x` counts: `files`, `threads`.
    pub axis: String,
    /// What a rate counts: `files/s`.
    pub unit: String,
    /// Who was to take part, in the order of the tables.
    pub contestants: Vec<Description>,
    /// The comparisons that it is about, as far as those took part who are compared.
    pub headlines: Vec<HeadlineRow>,
    /// What was measured, by step, then `x`, then contestant.
    pub rows: Vec<Row>,
    /// How rates change from the smallest `x` to the largest, of contestants with more than one.
    pub flatness: Vec<Flatness>,
    /// Who did not take part, or only in the smaller cases.
    pub skipped: Vec<Skipped>,
    /// What went wrong. There are no rows of these.
    pub failed: Vec<Failed>,
    /// Figures of others, from other machines.
    pub published: Vec<Published>,
}

/// One step of one case on one contestant.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The part of the workload that was timed.
    pub step: String,
    /// The size of the case, in the workload's `axis`.
    pub x: u64,
    /// Name of the contestant.
    pub contestant: String,
    /// Runs that the figures are of.
    pub runs: usize,
    /// What the rate counts, how many in a run; of several counts, the median.
    pub operations: u64,
    /// Operations per second of the median on the wall. `None` if that took no time.
    pub rate: Option<f64>,
    /// Time on the wall.
    pub wall: Summary,
    /// Processor time outside the kernel.
    pub user: Summary,
    /// Processor time in the kernel; without what kernel threads did.
    pub system: Summary,
    /// What else was measured.
    pub extras: Vec<ExtraRow>,
    /// What it costs more than the contestant's base in the same case.
    pub overhead: Option<Overhead>,
    /// Of one of ours: how many times the rate of the kernel's of the same format it has.
    pub kernel: Option<AgainstKernel>,
    /// Size of the file system in bytes.
    pub size_bytes: u64,
    /// Each run, in the order of the rounds.
    pub measured: Vec<Measured>,
}

/// One run of a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Its round, from 1.
    pub round: u32,
    /// How often it was repeated to be long enough; the figures are those of one time.
    pub repeats: u32,
    /// What the rate counts.
    pub operations: u64,
    /// Time on the wall.
    pub wall_s: f64,
    /// Processor time outside the kernel.
    pub user_s: f64,
    /// Processor time in the kernel.
    pub system_s: f64,
}

impl Measured {
    /// Operations per second.
    pub(crate) fn rate(&self) -> f64 {
        self.operations as f64 / self.wall_s
    }

    /// Processor time, in the kernel and outside.
    pub(crate) fn processor_s(&self) -> f64 {
        self.user_s + self.system_s
    }
}

/// The median of a figure beside the times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExtraRow {
    /// What it is.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The median. `None` if it is no number.
    pub median: Option<f64>,
}

/// How much more time something took than its base, in per cent of the base's medians; negative if it
/// took less, `None` if the base took none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overhead {
    /// Name of the base.
    pub base: String,
    /// Median time on the wall.
    pub wall_percent: Option<f64>,
    /// Median processor time outside the kernel.
    pub user_percent: Option<f64>,
    /// Median processor time in the kernel.
    pub system_percent: Option<f64>,
    /// Median processor time, both together.
    pub processor_percent: Option<f64>,
    /// How sure `wall_percent` is.
    pub wall: Option<Ratio>,
    /// How sure `user_percent` is.
    pub user: Option<Ratio>,
    /// How sure `system_percent` is.
    pub system: Option<Ratio>,
    /// How sure `processor_percent` is.
    pub processor: Option<Ratio>,
}

/// The rate of one of ours by that of the kernel's, of the same step and size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgainstKernel {
    /// Name of the kernel's: with the same settings, or else the one that is most like the default.
    pub contestant: String,
    /// How many times the kernel's rate.
    pub rate: Ratio,
}

/// How the rate of a contestant changes with the size of the case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Flatness {
    /// Name of the contestant.
    pub contestant: String,
    /// The part of the workload.
    pub step: String,
    /// Smallest `x`.
    pub from: u64,
    /// Largest `x`.
    pub to: u64,
    /// Rate at the largest by rate at the smallest: 1 is flat, less is slower. `None` if one of them
    /// took no time.
    pub ratio: Option<f64>,
    /// How sure it is.
    pub sure: Option<Ratio>,
}

/// A contestant that could not take part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Skipped {
    /// Its name.
    pub contestant: String,
    /// The `x` of the first case that it could not run; it was left out of the later ones too.
    pub from: u64,
    /// The reason.
    pub why: String,
}

/// A case that a contestant did not get through.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failed {
    /// Name of the contestant.
    pub contestant: String,
    /// The size of the case.
    pub x: u64,
    /// The run that failed, from 1.
    pub round: u32,
    /// What it said.
    pub why: String,
}

impl Report {
    /// For programs: pretty JSON, with a line end. A figure that is no number is `null`.
    pub fn json(&self) -> String {
        // Strings, numbers and lists: there is nothing in it that cannot be written.
        serde_json::to_string_pretty(self).map(|text| text + "\n").unwrap_or_default()
    }

    /// For a terminal: aligned tables.
    pub fn text(&self) -> String {
        text::text(self)
    }

    /// For documents: the same tables in Markdown.
    pub fn markdown(&self) -> String {
        text::markdown(self)
    }

    /// For people: one page that needs no scripts and nothing else from anywhere.
    pub fn html(&self, title: &str) -> String {
        page::page(self, title)
    }

    /// Something to say before all tables about how much they are worth.
    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.cut_short {
            warnings.push("Interrupted: only what was done until then is here.".to_owned());
        }
        if !self.optimised {
            warnings.push("Not a release build: its figures mean little.".to_owned());
        }
        let failed: usize = self.workloads.iter().map(|workload| workload.failed.len()).sum();
        if failed > 0 {
            warnings.push(format!("Cases that failed: {failed}. See their workloads."));
        }
        warnings
    }

    /// How it was made.
    fn conditions(&self) -> Vec<String> {
        let mut lines = self.machine.lines();
        let runs = match (self.rounds, self.rounds_most) {
            (1, 1) => "one run of each case: no ratio here is sure".to_owned(),
            (rounds, most) if most > rounds => format!(
                "up to {rounds} runs of each case in turns, and up to {most} while a ratio is not told apart; \
                 medians, with intervals of 95 % where things are compared"
            ),
            (rounds, _) => format!(
                "up to {rounds} runs of each case in turns, medians, with intervals of 95 % where things are \
                 compared"
            ),
        };
        lines.push(format!("{runs}; seed {}", self.seed));
        lines.push(self.durability.to_owned());
        lines
    }
}
