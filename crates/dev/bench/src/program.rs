//! The arguments of the program.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use cli::PlacesArgs;
use diskwright::{Outcome, Result};

use crate::command::{self, Workloads};
#[cfg(target_os = "linux")]
use crate::measurements::{self, Measurement};

/// Run published file-system workloads on Diskwright and on kernel file systems
#[derive(Debug, Parser)]
#[command(name = "diskwright-bench", version, after_help = command::HELP, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,

    #[command(flatten)]
    places: PlacesArgs,
}

/// A workload or a measurement.
#[derive(Debug, Subcommand)]
enum Benchmark {
    #[command(flatten)]
    Workload(Workloads),
    #[cfg(target_os = "linux")]
    #[command(flatten)]
    Measurement(Measurement),
}

/// Returns the definition of the program's arguments, with help.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the program.
pub fn main() -> ExitCode {
    cli::run("diskwright-bench", run)
}

fn run(arguments: &Arguments) -> Result<Outcome> {
    arguments.places.set()?;
    match &arguments.benchmark {
        Benchmark::Workload(workload) => command::run(workload),
        #[cfg(target_os = "linux")]
        Benchmark::Measurement(measurement) => measurements::run(measurement),
    }
}
