//! Options of the measurements.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of `scalability`.
#[derive(Debug, Args)]
pub(crate) struct ScalabilityOptions {
    /// Numbers of threads, each with a separate directory
    #[arg(long, value_delimiter = ',', default_values_t = [8, 64, 128], value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(super) workers: Vec<u32>,
    /// Number of files of each thread
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(16..=100_000))]
    pub(super) operations: u32,
    /// Duration of each trial with all threads at once, in seconds
    #[arg(long, default_value_t = 2.0)]
    pub(super) seconds: f64,
}

/// Options of `library`.
#[derive(Debug, Args)]
pub(crate) struct LibraryOptions {
    /// Run each case this many times and report the median
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Maximum number of calls in one run of a case
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) calls: u64,
}

/// Half of the names that is removed before the measurement.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Removed {
    /// Random names, which leaves free space everywhere
    Random,
    /// The oldest names, which leaves free space only at the front
    Oldest,
    /// No names: the directory starts with half of them, and each new name is added at the end and removed next
    None,
}

/// Options of `requests`.
#[derive(Debug, Args)]
pub(crate) struct RequestsOptions {
    /// Directory on the file system to measure
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
    /// Size of the file in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) mebibytes: u64,
    /// Duration of each case, in seconds
    #[arg(long, default_value_t = 1.0)]
    pub(super) seconds: f64,
}

/// Options of `memory`.
#[derive(Debug, Args)]
pub(crate) struct MemoryOptions {
    /// ext4 or XFS image, opened read-only
    #[arg(value_name = "IMAGE")]
    pub(super) image: PathBuf,
}

/// Options of `clones`.
#[derive(Debug, Args)]
pub(crate) struct ClonesOptions {
    /// Number of clones that are open at the same time
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) count: u32,
    /// Number of clones to commit
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) commits: u32,
    /// Changes before a large snapshot and reset, in MiB
    #[arg(long, default_value_t = 100)]
    pub(super) dirty_mib: usize,
    /// Directory for the base and the clones
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(super) scratch: PathBuf,
}

/// Options of `churn`.
#[derive(Debug, Args)]
pub(crate) struct ChurnOptions {
    /// Number of names in the new directory; half of them are removed before the measurement
    #[arg(long, default_value_t = 2_000_000)]
    pub(super) entries: u32,
    /// Half of the names to remove before the measurement
    #[arg(long, value_enum, default_value_t = Removed::Random)]
    pub(super) removed: Removed,
    /// Number of names to create and remove
    #[arg(long, default_value_t = 1_000_000)]
    pub(super) pairs: u32,
    /// Maximum duration of the measurement in one run, in seconds
    #[arg(long, default_value_t = 60)]
    pub(super) seconds_max: u64,
    /// Run each strategy this many times and report the median
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Run only strategies whose name contains one of these texts, separated by commas
    #[arg(long, value_name = "TEXT", value_delimiter = ',')]
    pub(super) only: Vec<String>,
    /// Directory on a memory-backed file system for the images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(super) scratch: PathBuf,
}

/// Options of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// Numbers of directory entries, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000, 10_000_000])]
    pub(super) entries: Vec<u32>,
    /// Run each case this many times and report the median
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: u32,
    /// Directory on a memory-backed file system for the images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(super) scratch: PathBuf,
}

/// A format to build images in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BuildFormat {
    Ext4,
    Xfs,
}

impl BuildFormat {
    /// Returns the name for `diskwright build --fs`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

/// Options of `build`.
#[derive(Debug, Args)]
pub(crate) struct BuildOptions {
    /// Format of the images that the program under test builds
    #[arg(long, value_enum, default_value = "ext4")]
    pub(super) fs: BuildFormat,
    /// Run fewer rounds, without the directory of 2 million files, and with /usr/share as the tree
    #[arg(long)]
    pub(super) quick: bool,
    /// Run each contestant this many times and report the median [default: 5, with --quick 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) rounds: Option<u32>,
    /// Directory on a memory-backed file system for sources and images
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(super) scratch: PathBuf,
    /// Directory tree to build an image from [default: /usr, with --quick /usr/share]
    #[arg(long, value_name = "DIR")]
    pub(super) tree: Option<PathBuf>,
    /// Run only cases whose name contains TEXT
    #[arg(long, value_name = "TEXT")]
    pub(super) only: Option<String>,
    /// Program under test [default: diskwright in the directory of this program]
    #[arg(long, value_name = "FILE", env = "DISKWRIGHT_BIN")]
    pub(super) program: Option<PathBuf>,
    /// mkfs.xfs of xfsprogs 6.17 or newer [default: the one that scripts/install-xfsprogs installs]
    #[arg(long, value_name = "FILE", env = "DISKWRIGHT_MKFS_XFS")]
    pub(super) mkfs_xfs: Option<PathBuf>,
    /// Print the report as Markdown
    #[arg(long, conflicts_with = "json")]
    pub(super) markdown: bool,
}
