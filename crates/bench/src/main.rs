//! Measures Diskwright against its peers: same machine, same source, same run, interleaved.
//!
//! The command under test is the release binary, run as a user would run it. Sources and
//! images are in memory, so that what is compared is work and not a disk.

#![forbid(unsafe_code)]

mod build;
mod contestant;
mod edit;
mod list;
mod measure;
mod report;
mod seeds;
mod sources;
mod versions;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Parser)]
#[command(about = "Measures Diskwright against its peers in the same run")]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Images from directories: against mke2fs -d, mkfs.xfs -p and tar
    Build(BuildOptions),
    /// Changes in place: against the kernel's ext4 on a loop device over the same memory
    Edit(EditOptions),
    /// Listing large directories: against the kernel's ext4 on the same image
    List(ListOptions),
    /// Files made in one XFS directory, for every strategy of finding free space, and in the kernel
    Directory(DirectoryOptions),
    /// Names made and removed at random in one half-empty XFS directory, for every strategy
    Churn(ChurnOptions),
    /// What parent pointers add to making and removing files on XFS
    Parents(ParentsOptions),
}

/// What the benchmark of growing directories is asked to do.
#[derive(Args)]
struct DirectoryOptions {
    /// Files to make
    #[arg(long, value_delimiter = ',',
          default_values_t = [10_000, 20_000, 100_000, 200_000, 1_000_000, 2_000_000, 10_000_000])]
    files: Vec<u32>,
    /// Timed runs of each case; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Number of files from which a case runs only once
    #[arg(long, value_name = "FILES", default_value_t = 2_000_000)]
    once: u32,
    /// Only the strategies whose name contains one of these
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    only: Vec<String>,
    /// Not the kernel
    #[arg(long)]
    alone: bool,
    /// Most files of an image that xfs_repair judges
    #[arg(long, value_name = "FILES", default_value_t = 1_000_000)]
    judge_max: u32,
    /// Directory on a memory-backed file system for the images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
}

/// Which half of a directory's names goes first.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Removed {
    /// Any: room is left everywhere
    Random,
    /// The oldest: room is left at the front only
    Oldest,
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

/// What the benchmark of parent pointers is asked to do.
#[derive(Args)]
struct ParentsOptions {
    /// Threads, each in a directory and an allocation group of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Files of each thread
    #[arg(long, default_value_t = 200_000)]
    files: u32,
    /// Subdirectories of each thread
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    directories: u32,
    /// Timed runs with and without parent pointers; the medians count
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
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

/// What the benchmark of changes is asked to do.
#[derive(Args)]
struct EditOptions {
    /// Files to create and remove per thread
    #[arg(long, default_value_t = 200_000)]
    files: u32,
    /// Truncates of all threads together in the orphan cases
    #[arg(long, default_value_t = 1 << 20)]
    truncates: u64,
    /// Timed runs of each case; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Directory on a memory-backed file system for the images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Only the cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Only this project, not the kernel: for profiling
    #[arg(long)]
    alone: bool,
    /// Only cases of this number of threads
    #[arg(long, value_name = "N")]
    threads: Option<u32>,
    /// Print the table as Markdown
    #[arg(long)]
    markdown: bool,
}

/// A format to build images in.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BuildFormat {
    Ext4,
    Xfs,
}

impl BuildFormat {
    /// As `diskwright build --fs` has it.
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
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = match Arguments::parse().benchmark {
        Benchmark::Build(options) => options,
        Benchmark::Edit(options) => {
            return print(edit::run(&options).map(|report| report.text(options.markdown)));
        }
        Benchmark::List(options) => return print(list::run(&options)),
        Benchmark::Directory(options) => return print(seeds::directory::run(&options)),
        Benchmark::Churn(options) => return print(seeds::churn::run(&options)),
        Benchmark::Parents(options) => return print(seeds::parents::run(&options)),
    };
    match build::run(&options) {
        Ok(report) if options.json => print!("{}", report.json()),
        Ok(report) if options.markdown => print!("{}", report.markdown()),
        Ok(report) => print!("{}", report.text()),
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn print(outcome: Result<String, String>) -> ExitCode {
    match outcome {
        Ok(text) => print!("{text}"),
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
