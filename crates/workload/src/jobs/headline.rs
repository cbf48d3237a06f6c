//! The figures that a workload is about: what it has to say before all tables.

use serde::Serialize;

/// A comparison that a report says first. All are ratios, so that those of other machines can be held
/// against them.
#[derive(Clone, Debug)]
pub struct Headline {
    /// What it is, in a few words: `orphan file against the list`.
    pub name: &'static str,
    /// The step that it is about.
    pub step: &'static str,
    /// How it comes about.
    pub measure: Measure,
    /// The same figure from the thread that the workload is from; empty if nobody published it.
    pub theirs: Vec<Theirs>,
}

/// How a headline comes about. Settings are parts of contestants' names, between commas: `orphans=list`.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// The rate at the largest size by that at the smallest, of each contestant that is set up as it
    /// would be by default.
    Flatness,
    /// The rate with a setting by the rate of the contestant whose name has `without` in its place, at
    /// the largest size that both ran.
    Rates {
        /// The setting.
        with: &'static str,
        /// What stands in its place.
        without: &'static str,
        /// From this size on the smallest ratio is said as well; `None` if only the last counts.
        least_from: Option<u64>,
    },
    /// Processor time, in the kernel and outside together, with a setting by the one without it: see
    /// `Rates`.
    Processor {
        /// The setting.
        with: &'static str,
        /// What stands in its place.
        without: &'static str,
    },
}

/// A ratio that somebody published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Theirs {
    /// When, and of what: `2021, 128 threads`.
    pub about: &'static str,
    /// The ratio.
    pub ratio: f64,
}
