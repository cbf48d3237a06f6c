//! The main figures of a workload, which a report shows before all tables.

use serde::Serialize;

/// A main comparison. All are ratios, so that they can be compared with those of other machines.
#[derive(Clone, Debug)]
pub struct Headline {
    /// Name in a few words: `orphan file against the list`.
    pub name: &'static str,
    /// The step that it concerns.
    pub step: &'static str,
    /// Computation of the ratio.
    pub measure: Measure,
    /// The same figure in the thread that the workload comes from; empty if none was published.
    pub theirs: Vec<Theirs>,
}

/// Computation of a headline. Settings are comma-separated parts of contestants' names: `orphans=list`.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// The rate at the largest size divided by that at the smallest, for each contestant with default settings.
    Flatness,
    /// The rate with a setting divided by the rate of the contestant with `without` instead, at the largest size that
    /// both ran.
    Rates {
        /// The setting.
        with: &'static str,
        /// The alternative setting.
        without: &'static str,
        /// Also shows the minimum ratio from this size on; `None` shows the last one only.
        least_from: Option<u64>,
    },
    /// Processor time, user and system together, with a setting divided by that without it: see `Rates`.
    Processor {
        /// The setting.
        with: &'static str,
        /// The alternative setting.
        without: &'static str,
    },
}

/// A published ratio.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Theirs {
    /// Year and subject: `2021, 128 threads`.
    pub about: &'static str,
    /// The ratio.
    pub ratio: f64,
}
