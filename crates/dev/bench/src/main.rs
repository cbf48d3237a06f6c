//! Compares Diskwright with other programs: same machine, same source, same run, interleaved.
//!
//! The program under test is the release binary, run as a user would. Sources and images are in memory, so that
//! processing time is compared and not a disk.

#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate testkit;

mod build;
mod churn;
mod contestant;
mod library;
mod list;
mod measure;
mod memory;
mod report;
mod requests;
mod scalability;
mod sources;
mod table;
mod versions;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(about = "Compare the speed of Diskwright and other programs in one run")]
struct Arguments {
    /// Print results as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Build images from directories, compared with mke2fs -d, mkfs.xfs -p and tar
    Build(BuildOptions),
    /// List large directories, compared with the kernel's ext4 on the same image
    List(ListOptions),
    /// Create and remove random names in one half-empty XFS directory, with each search strategy for free space
    Churn(ChurnOptions),
    /// Measure random 4 KiB requests to a file, one and sixteen at a time, and fsync
    Requests(RequestsOptions),
    /// Measure the memory of an open image for each cached directory entry and inode
    Memory(MemoryOptions),
    /// Measure locks, hold times and shared cache lines of each operation, and estimate the throughput of many threads.
    /// Requires the feature count-locks
    Scalability(ScalabilityOptions),
    /// Measure file calls of the library, compared with the underlying file-system calls
    Library(LibraryOptions),
}

/// Options of `scalability`.
#[derive(Args)]
struct ScalabilityOptions {
    /// Numbers of threads, each with a separate directory
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 128], value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Vec<u32>,
    /// Number of files of each thread
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=100_000))]
    operations: u32,
    /// Duration of each trial with all threads at once, in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// Options of `library`.
#[derive(Args)]
struct LibraryOptions {
    /// Run each case this many times and report the median
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Maximum number of calls in one run of a case
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
}

/// Half of the names that is removed before the measurement.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Removed {
    /// Random names, which leaves free space everywhere
    Random,
    /// The oldest names, which leaves free space only at the front
    Oldest,
    /// No names: the directory starts with half of them, and each new name is added at the end and removed next
    None,
}

/// Options of `requests`.
#[derive(Args)]
struct RequestsOptions {
    /// Directory on the file system to measure
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Size of the file in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    mebibytes: u64,
    /// Duration of each case, in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// Options of `memory`.
#[derive(Args)]
struct MemoryOptions {
    /// ext4 or XFS image, opened read-only
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// Options of `churn`.
#[derive(Args)]
struct ChurnOptions {
    /// Number of names in the new directory; half of them are removed before the measurement
    #[arg(long, default_value_t = 2_000_000)]
    entries: u32,
    /// Half of the names to remove before the measurement
    #[arg(long, value_enum, default_value_t = Removed::Random)]
    removed: Removed,
    /// Number of names to create and remove
    #[arg(long, default_value_t = 1_000_000)]
    pairs: u32,
    /// Maximum duration of the measurement in one run, in seconds
    #[arg(long, default_value_t = 60)]
    seconds_max: u64,
    /// Run each strategy this many times and report the median
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run only strategies whose name contains one of these texts, separated by commas
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Directory on a memory-backed file system for the images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
}

/// Options of `list`.
#[derive(Args)]
struct ListOptions {
    /// Numbers of directory entries, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000, 10_000_000])]
    entries: Vec<u32>,
    /// Run each case this many times and report the median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Directory on a memory-backed file system for the images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
}

/// A format to build images in.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BuildFormat {
    Ext4,
    Xfs,
}

impl BuildFormat {
    /// Returns the name for `diskwright build --fs`.
    fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

/// Options of `build`.
#[derive(Args)]
struct BuildOptions {
    /// Format of the images that the program under test builds
    #[arg(long, value_enum, default_value = "ext4")]
    fs: BuildFormat,
    /// Run fewer rounds, without the directory of 2 million files, and with /usr/share as the tree
    #[arg(long)]
    quick: bool,
    /// Run each contestant this many times and report the median [default: 5, with --quick 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Directory on a memory-backed file system for sources and images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Directory tree to build an image from [default: /usr, with --quick /usr/share]
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Run only cases whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Program under test [default: diskwright in the directory of this program]
    #[arg(long, value_name = "FILE", env = "DISKWRIGHT_BIN")]
    program: Option<PathBuf>,
    /// mkfs.xfs of xfsprogs 6.17 or newer [default: the one that scripts/install-xfsprogs installs]
    #[arg(long, value_name = "FILE", env = "DISKWRIGHT_MKFS_XFS")]
    mkfs_xfs: Option<PathBuf>,
    /// Print the report as Markdown
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

fn main() -> ExitCode {
    let Arguments { json, benchmark } = Arguments::parse();
    let table = |table: Result<table::Table, String>| {
        table.map(|table| if json { table.json() } else { table.markdown() })
    };
    let outcome = match benchmark {
        Benchmark::Build(options) => build::run(&options).map(|report| match options.markdown {
            _ if json => report.json(),
            true => report.markdown(),
            false => report.text(),
        }),
        Benchmark::List(options) => table(list::run(&options)),
        Benchmark::Churn(options) => table(churn::run(&options)),
        Benchmark::Requests(options) => table(requests::run(&options)),
        Benchmark::Memory(options) => table(memory::run(&options)),
        Benchmark::Scalability(options) => {
            scalability::run(&options).map(|tables| titled(&tables, json))
        }
        Benchmark::Library(options) => table(library::run(&options)),
    };
    match outcome {
        Ok(text) => print!("{text}"),
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
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
