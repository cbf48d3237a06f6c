//! Arguments common to all workloads: targets, rounds and reports.

use std::path::{Path, PathBuf};

use crate::environments::TargetSpec;
use clap::Args;
use diskwright::text::escaped;
use diskwright::{Error, Result};

use super::counts::small_count;

/// Help headings.
const RUN: &str = "Run";
const REPORT: &str = "Report";

/// Target, rounds and reports of a workload.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Run on this target: memory:FORMAT, kernel:FORMAT, an image or a directory (repeatable). The default and the syntax are
    /// below
    #[arg(long = "target", value_name = "TARGET", help_heading = RUN)]
    pub(super) targets: Vec<TargetSpec>,

    /// Run each case N times on each target, interleaved, and report the median. Large cases run once [default: 1, in compare
    /// that of the set]
    #[arg(long, value_name = "N", value_parser = small_count, help_heading = RUN)]
    pub(super) rounds: Option<u32>,

    /// Add rounds to a case, up to N in total, while a difference is not significant [default: the value of --rounds, in
    /// compare 4 times the rounds of sets with at least three]
    #[arg(long, value_name = "N", value_parser = small_count, help_heading = RUN)]
    pub(super) rounds_most: Option<u32>,

    /// Set the seed of names and random choices. The same seed gives the same operations
    #[arg(long, value_name = "N", default_value = "1", help_heading = RUN)]
    pub(super) seed: u64,

    /// Create images for kernel: targets in this directory [default: /dev/shm if it exists, otherwise the temporary directory]
    #[arg(long, value_name = "DIRECTORY", help_heading = RUN)]
    pub(super) scratch: Option<PathBuf>,

    #[command(flatten)]
    pub(super) report: ReportArgs,
}

/// Options of the report.
#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// Write the report as JSON to standard output
    #[arg(long, conflicts_with = "markdown", help_heading = REPORT)]
    pub(super) json: bool,

    /// Write the report as Markdown to standard output
    #[arg(long, help_heading = REPORT)]
    pub(super) markdown: bool,

    /// Write report.html and report.json to this directory, created if missing [default: none, in compare ./workload-report]
    #[arg(long = "report", value_name = "DIRECTORY", help_heading = REPORT)]
    pub(super) directory: Option<PathBuf>,
}

/// Returns the given targets, or `others` if none were given.
///
/// # Errors
/// `Usage` if one of the others cannot be parsed.
pub(super) fn targets_or(given: &[TargetSpec], others: &[&str]) -> Result<Vec<TargetSpec>> {
    if !given.is_empty() {
        return Ok(given.to_vec());
    }
    others.iter().map(|name| name.parse().map_err(Error::Usage)).collect()
}

/// Returns the directory for generated images: in memory if possible.
pub(super) fn scratch(given: Option<&Path>) -> Result<PathBuf> {
    let shared = Path::new("/dev/shm");
    let scratch = match given {
        Some(directory) => directory.to_owned(),
        None if shared.is_dir() => shared.to_owned(),
        None => std::env::temp_dir(),
    };
    if !scratch.is_dir() {
        let name = escaped(scratch.as_os_str().as_encoded_bytes());
        return Err(Error::Usage(format!("--scratch {name}: no such directory; create it first")));
    }
    Ok(scratch)
}
