//! Runs planned workloads and writes the report.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Machine;
use crate::contestant::Contestant;
use crate::environments::{Settings, contestant};
use crate::report::Report;
use crate::run::{self, Options, ScheduledJob};
use cli::terminal;
use diskwright::text::{escaped, minute};
use diskwright::{Error, Outcome, Result};
use vfs::Timestamp;

use super::common::{self, ReportArgs, RunArgs};
use super::expand::Rival;
use super::planned::Planned;
use super::progress::ProgressLine;

/// Minimum number of rounds for comparable figures.
pub(super) const ROUNDS_TO_COMPARE: u32 = 3;

/// Workloads to run, with options and the default directory of the report.
pub(super) struct RunPlan<'a> {
    pub(super) planned: Vec<Planned>,
    pub(super) run: &'a RunArgs,
    pub(super) rounds: u32,
    pub(super) rounds_most: u32,
    pub(super) directory: Option<&'a Path>,
}

/// Runs a plan and writes its report.
pub(super) fn execute(plan: RunPlan<'_>) -> Result<Outcome> {
    if cfg!(debug_assertions) {
        let hint = "results of a debug build are not meaningful; build with --release";
        terminal::message(&hint);
    }
    let counts = plan.planned.iter().any(|planned| planned.job.name() == "find");
    if counts && !crate::allocations::COUNTED {
        let hint = "allocations are not counted: this needs a build with --features allocations";
        terminal::message(&hint);
    }
    let scratch = common::scratch(plan.run.scratch.as_deref())?;
    let directory = plan.run.report.directory.as_deref().or(plan.directory);
    if let Some(directory) = directory {
        // Fail here rather than after hours of work.
        fs::create_dir_all(directory).map_err(|error| host("create", directory, error))?;
    }
    let settings = Settings { scratch };
    let options = Options {
        rounds: plan.rounds,
        rounds_most: plan.rounds_most,
        step_least: step_least(plan.rounds),
        seed: plan.run.seed,
        command: command(),
        date: date(),
        machine: Machine::describe(&settings.scratch, versions()),
    };
    let entries = plan.planned.into_iter().map(|planned| entry(planned, &settings));
    let entries = entries.collect::<Result<Vec<_>>>()?;
    let stop = diskwright::stop_on_signals()?;
    let bar = ProgressLine::new();
    let report = run::run(&entries, &options, stop, &bar);
    drop(bar);
    let report = report.map_err(|error| Error::Usage(error.to_string()))?;
    write_report(&report, &plan.run.report, directory)?;
    Ok(outcome(&report))
}

/// Returns the minimum duration of a step for meaningful figures. With fewer rounds the user only
/// checks that a case runs, so steps may be short.
fn step_least(rounds: u32) -> Duration {
    if rounds >= ROUNDS_TO_COMPARE { Duration::from_millis(250) } else { Duration::ZERO }
}

fn entry(planned: Planned, settings: &Settings) -> Result<ScheduledJob> {
    let contestants = planned.rivals.into_iter().map(|rival| ready(rival, settings));
    Ok(ScheduledJob { job: planned.job, contestants: contestants.collect::<Result<_>>()? })
}

fn ready(rival: Rival, settings: &Settings) -> Result<Rc<dyn Contestant>> {
    contestant(&rival.target, rival.base, settings).map_err(|error| {
        // An unsuitable path is a usage error.
        let is_other = match &error {
            Error::Host { source, .. } => source.kind() == ErrorKind::NotFound,
            Error::Image { source, .. } => matches!(source, vfs::Error::Unsupported(_)),
            _ => false,
        };
        if is_other { Error::Usage(error.with_advice()) } else { error }
    })
}

/// Returns the command line.
fn command() -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| escaped(word.as_encoded_bytes()).to_string());
    ["diskwright-bench".to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn date() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{} UTC", minute(Timestamp { sec: now.as_secs() as i64, nsec: 0 }))
}

fn versions() -> Vec<String> {
    vec![format!("diskwright {}", env!("CARGO_PKG_VERSION"))]
}

fn write_report(report: &Report, args: &ReportArgs, directory: Option<&Path>) -> Result<()> {
    // Write the files first: the reader of standard output may close it.
    if let Some(directory) = directory {
        let title = "Diskwright workloads";
        for (name, text) in [("report.html", report.html(title)), ("report.json", report.json())] {
            let path = directory.join(name);
            fs::write(&path, text).map_err(|error| host("write", &path, error))?;
        }
        let name = escaped(directory.as_os_str().as_encoded_bytes());
        terminal::message(&format_args!("wrote report.html and report.json to {name}"));
    }
    let text = match (args.json, args.markdown) {
        (true, _) => report.json(),
        (false, true) => report.markdown(),
        (false, false) => report.text(),
    };
    terminal::with_output(|out| writeln!(out, "{}", text.trim_end()).map_err(Error::Output))
}

fn host(operation: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Host { operation, path: path.to_owned(), source }
}

/// Returns the outcome of a run: interrupted, failed, empty or complete.
fn outcome(report: &Report) -> Outcome {
    if report.cut_short {
        terminal::message(&"interrupted: the report has the results so far");
        return Outcome::Interrupted;
    }
    let failed: usize = report.workloads.iter().map(|workload| workload.failed.len()).sum();
    if failed > 0 {
        terminal::message(&format_args!("{failed} runs failed; the report lists them"));
        return Outcome::No;
    }
    if report.workloads.iter().all(|workload| workload.rows.is_empty()) {
        terminal::message(&"no target is available on this host; nothing was run");
        return Outcome::No;
    }
    Outcome::Done
}
