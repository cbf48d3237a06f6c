//! Compares Diskwright with other programs: same machine, same source, same run, interleaved.
//!
//! The program under test is the release binary, run as a user would. Sources and images are in memory, so that
//! processing time is compared and not a disk.

#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate oracle;

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
#[command(about = "Measures Diskwright against its peers in the same run")]
struct Arguments {
    /// Print tables as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Images from directories: against mke2fs -d, mkfs.xfs -p and tar
    Build(BuildOptions),
    /// Listing large directories: against the kernel's ext4 on the same image
    List(ListOptions),
    /// Names made and removed at random in one half-empty XFS directory, for every strategy
    Churn(ChurnOptions),
    /// Random requests of 4 KiB to a file in a directory, one and sixteen at a time, and what fsync takes
    Requests(RequestsOptions),
    /// Memory that an open image takes for each entry and each inode that it has cached
    Memory(MemoryOptions),
    /// What threads on many processors share, for each operation: locks, how long they are held, cache lines, and how fast
    /// 8, 64 and 128 of them can be. Needs a program with the feature count-locks
    Scalability(ScalabilityOptions),
    /// Files of the library: against the calls of the file system beneath
    Library(LibraryOptions),
}

/// What the measurement of what threads share is asked to do.
#[derive(Args)]
struct ScalabilityOptions {
    /// Numbers of threads, each with a directory of its own
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 128], value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Vec<u32>,
    /// Files of each thread
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=100_000))]
    operations: u32,
    /// Time of each trial with all threads at once, in seconds
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
}

/// What the benchmark of the library is asked to do.
#[derive(Args)]
struct LibraryOptions {
    /// Turns of each case; the median counts
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Most calls of a turn
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    calls: u64,
}

/// Which half of a directory's names goes first.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Removed {
    /// Any: room is left everywhere
    Random,
    /// The oldest: room is left at the front only
    Oldest,
    /// None: there are half as many from the start; a new name finds room at the end only, and is the next
    /// that goes
    None,
}

/// What the benchmark of requests is asked to do.
#[derive(Args)]
struct RequestsOptions {
    /// Directory of the file system to measure
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Size of the file in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    mebibytes: u64,
    /// Time of each case, in seconds
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
}

/// What the benchmark of memory is asked to do.
#[derive(Args)]
struct MemoryOptions {
    /// Image of either format, which is only read
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

/// What the benchmark of changing directories is asked to do.
#[derive(Args)]
struct ChurnOptions {
    /// Names the directory is made with; half of them are removed before the changes
    #[arg(long, default_value_t = 2_000_000)]
    entries: u32,
    /// Which half of the names is removed before the changes
    #[arg(long, value_enum, default_value_t = Removed::Random)]
    removed: Removed,
    /// Names to make and to remove
    #[arg(long, default_value_t = 1_000_000)]
    pairs: u32,
    /// Longest time of the changes of one run, in seconds
    #[arg(long, default_value_t = 60)]
    seconds_max: u64,
    /// Runs of each strategy; the median counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only the strategies whose name contains one of these
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Directory on a memory-backed file system for the images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
}

/// What the benchmark of listings is asked to do.
#[derive(Args)]
struct ListOptions {
    /// Sizes of the directories
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000, 10_000_000])]
    entries: Vec<u32>,
    /// Timed runs of each case; the median counts
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

/// What the build benchmark is asked to do.
#[derive(Args)]
struct BuildOptions {
    /// Format of the images that the program under test makes
    #[arg(long, value_enum, default_value = "ext4")]
    fs: BuildFormat,
    /// Fewer rounds, no 2-million-file directory, and /usr/share as the tree
    #[arg(long)]
    quick: bool,
    /// Timed runs of each contestant; the median counts [default: 5, with --quick 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Directory on a memory-backed file system for sources and images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Real tree to build an image from [default: /usr, with --quick /usr/share]
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Only the cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Program under test [default: diskwright beside this program]
    #[arg(long, value_name = "FILE", env = "DISKWRIGHT_BIN")]
    program: Option<PathBuf>,
    /// mkfs.xfs of xfsprogs 6.17 or newer [default: that of scripts/install-xfsprogs]
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
