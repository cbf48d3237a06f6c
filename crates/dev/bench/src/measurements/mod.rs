//! Comparisons of Diskwright with other programs, and single measurements: same machine, same source, same run,
//! interleaved.
//!
//! The program under test is the release binary, run as a user would. Sources and images are in memory, so that
//! processing time is compared and not a disk.

mod build;
mod churn;
mod clones;
mod contestant;
mod library;
mod list;
mod measure;
mod memory;
mod options;
mod report;
mod requests;
mod scalability;
mod sources;
mod table;
mod versions;

use std::io::Write;

use clap::{Args, Subcommand};
use cli::terminal::{message, with_output};
use diskwright::{Error, Outcome, Result};

use options::{
    BuildOptions, ChurnOptions, ClonesOptions, LibraryOptions, ListOptions, MemoryOptions,
    RequestsOptions, ScalabilityOptions,
};
use table::Table;

/// A measurement with its options, and how to print its results.
#[derive(Debug, Args)]
pub(crate) struct Printed<T: Args> {
    #[command(flatten)]
    options: T,
    /// Print results as JSON
    #[arg(long)]
    json: bool,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Measurement {
    /// Build images from directories, compared with mke2fs -d, mkfs.xfs -p and tar
    Build(Printed<BuildOptions>),
    /// List large directories, compared with the kernel's ext4 on the same image
    List(Printed<ListOptions>),
    /// Create and remove random names in one half-empty XFS directory, with each search strategy for free space
    Churn(Printed<ChurnOptions>),
    /// Create, change, snapshot, reset and commit many clones of one image, all open at the same time
    Clones(Printed<ClonesOptions>),
    /// Measure random 4 KiB requests to a file, one and sixteen at a time, and fsync
    Requests(Printed<RequestsOptions>),
    /// Measure the memory of an open image for each cached directory entry and inode
    Memory(Printed<MemoryOptions>),
    /// Measure locks, hold times and shared cache lines of each operation, and estimate the throughput of many threads.
    /// Requires the feature count-locks
    Scalability(Printed<ScalabilityOptions>),
    /// Measure file calls of the library, compared with the underlying file-system calls
    Library(Printed<LibraryOptions>),
}

/// Runs a measurement and prints its results.
pub(crate) fn run(measurement: &Measurement) -> Result<Outcome> {
    let text = match measurement {
        Measurement::Build(Printed { options, json }) => {
            build::run(options).map(|report| match options.markdown {
                _ if *json => report.json(),
                true => report.markdown(),
                false => report.text(),
            })
        }
        Measurement::List(Printed { options, json }) => printed(list::run(options), *json),
        Measurement::Churn(Printed { options, json }) => printed(churn::run(options), *json),
        Measurement::Clones(Printed { options, json }) => printed(clones::run(options), *json),
        Measurement::Requests(Printed { options, json }) => printed(requests::run(options), *json),
        Measurement::Memory(Printed { options, json }) => printed(memory::run(options), *json),
        Measurement::Scalability(Printed { options, json }) => {
            scalability::run(options).map(|tables| titled(&tables, *json))
        }
        Measurement::Library(Printed { options, json }) => printed(library::run(options), *json),
    };
    match text {
        Ok(text) => {
            with_output(|out| out.write_all(text.as_bytes()).map_err(Error::Output))?;
            Ok(Outcome::Done)
        }
        Err(error) => {
            message(&error);
            Ok(Outcome::No)
        }
    }
}

fn printed(table: Result<Table, String>, json: bool) -> Result<String, String> {
    table.map(|table| if json { table.json() } else { table.markdown() })
}

/// Formats several tables, each with its title.
fn titled(tables: &[scalability::Titled], json: bool) -> String {
    if json {
        let all: Vec<_> = tables.iter().map(|(title, table)| (*title, table)).collect();
        return serde_json::to_string_pretty(&all).expect("plain data serializes") + "\n";
    }
    let sections = tables.iter().map(|(title, table)| format!("## {title}\n{}", table.markdown()));
    sections.collect::<Vec<_>>().join("\n")
}
