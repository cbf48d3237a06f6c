//! Options of each workload. The defaults are those of the mailing-list thread from which the
//! workload is taken.

use std::convert::Infallible;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use diskwright::text::parse_size;

use super::counts::{count, small_count};

/// Default number of files of a generated tree: that of Linux 6.12.
pub(super) const TREE_FILES: u64 = 87_000;

/// Options of `create`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CreateOptions {
    /// Create N files in one directory; one run for each number
    #[arg(
        short = 'n',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = count,
        default_value = "10k,20k,100k,200k,1M,2M"
    )]
    pub(super) files: Vec<u64>,

    /// Use N threads, each with that number of files in a separate directory
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "1")]
    pub(super) threads: u32,

    /// Open, fsync and close each file before the next one
    #[arg(long)]
    pub(super) fsync: bool,

    /// Compare these searches for directory space on memory:xfs: tree, block-skip, reverse, forward, forward-decode, or all
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) free_index: Vec<String>,
}

/// Options of `remove`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RemoveOptions {
    /// Remove N files from one directory; one run for each number
    #[arg(
        short = 'n',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = count,
        default_value = "10k,20k,100k,200k,1M,2M"
    )]
    pub(super) files: Vec<u64>,

    /// Use N threads, each with that number of files in a separate directory
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "1")]
    pub(super) threads: u32,

    /// Create the files again and remove them with cold caches
    #[arg(long)]
    pub(super) cold: bool,
}

/// Options of `change`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChangeOptions {
    /// Use N files in one directory; one run for each number
    #[arg(
        short = 'n',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = count,
        default_value = "10k,100k"
    )]
    pub(super) files: Vec<u64>,

    /// Use N threads, each in separate directories
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "1")]
    pub(super) threads: u32,
}

/// Options of `fs-mark`, with the letters that `fs_mark` has for them.
#[derive(Clone, Debug, Args)]
pub(crate) struct FsMarkOptions {
    /// Use N threads, each with a separate directory and, on XFS, a separate allocation group [default: one per processor]
    #[arg(short, long, value_name = "N", value_parser = small_count)]
    pub(super) threads: Option<u32>,

    /// Create N files in each loop of each thread
    #[arg(short = 'n', long, value_name = "N", value_parser = small_count, default_value = "100000")]
    pub(super) files: u32,

    /// Run N loops
    #[arg(short = 'L', long, value_name = "N", value_parser = small_count, default_value = "8")]
    pub(super) loops: u32,

    /// Use N subdirectories for each thread. The clock selects one, and the next one every 180 seconds
    #[arg(short = 'D', long, value_name = "N", value_parser = small_count, default_value = "10000")]
    pub(super) subdirectories: u32,

    /// Create all files again and remove them with cold caches
    #[arg(long)]
    pub(super) cold: bool,

    /// Rename all files before the removal: within their directories, then to another directory
    #[arg(long)]
    pub(super) rename: bool,

    /// Size of each file in bytes; only 0 is supported, as in the original
    #[arg(
        short = 's',
        long = "size",
        value_name = "0",
        value_parser = clap::value_parser!(u8).range(0..=0),
        default_value = "0"
    )]
    _size: u8,

    /// Sync method; only 0 (no sync) is supported, as in the original
    #[arg(
        short = 'S',
        long = "sync-method",
        value_name = "0",
        value_parser = clap::value_parser!(u8).range(0..=0),
        default_value = "0"
    )]
    _sync_method: u8,
}

/// Options of `find`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FindOptions {
    /// Walk the existing files (existing), a generated tree (generated, or generated:FILES), or a copy of the names below
    /// DIRECTORY [default: existing for images and directories, generated:87k for memory: and kernel:]
    #[arg(long, value_name = "existing|generated[:FILES]|DIRECTORY")]
    pub(super) tree: Option<TreeOption>,

    /// Run N walks, the first one with cold caches
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "100")]
    pub(super) walks: u32,
}

/// The tree that `find` walks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TreeOption {
    /// The existing files.
    Existing,
    /// A generated tree with this number of files.
    Generated(u64),
    /// A generated tree with the names below this directory of the host.
    Like(PathBuf),
}

impl FromStr for TreeOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("write existing, generated, generated:FILES or a directory".into()),
            "existing" => Ok(Self::Existing),
            "generated" => Ok(Self::Generated(TREE_FILES)),
            _ => match text.strip_prefix("generated:") {
                Some(files) => count(files).map(Self::Generated),
                None => text.parse().map(Self::Like).map_err(|never: Infallible| match never {}),
            },
        }
    }
}

/// Options of `stress-orphan`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StressOrphanOptions {
    /// Use N threads, each with separate files; one run for each number
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = small_count,
        default_value = "1,2,4,8,16,32,64,128"
    )]
    pub(super) threads: Vec<u32>,

    /// Set the size of each file, which equals the number of its truncations
    #[arg(short = 's', long, value_name = "SIZE", value_parser = file_size, default_value = "4K")]
    pub(super) file_size: u32,

    /// Truncate N files in each thread, one after the other
    #[arg(short = 'n', long, value_name = "N", value_parser = small_count, default_value = "16")]
    pub(super) files: u32,
}

/// Options of `stress-unlink`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StressUnlinkOptions {
    /// Use N threads, each with a separate directory; one run for each number
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = small_count,
        default_value = "1,2,4,8,16,32,64,128"
    )]
    pub(super) threads: Vec<u32>,

    /// Create and remove N files in each thread
    #[arg(short = 'n', long, value_name = "N", value_parser = small_count, default_value = "100")]
    pub(super) files: u32,
}

/// Options of `fserver`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FserverOptions {
    /// Run N concurrent tasks, each as a thread; one run for each number
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = small_count,
        default_value = "1,25,49,73,97,121,145,169,193"
    )]
    pub(super) tasks: Vec<u32>,

    /// Run N jobs in each task, selected randomly by weight
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "100")]
    pub(super) jobs: u32,

    /// Set the size of each file that jobs read and write, without its share of the pool; at least 4K
    #[arg(short = 's', long, value_name = "SIZE", value_parser = whole_blocks, default_value = "1M")]
    pub(super) file_size: u64,

    /// Set the pool size, which is divided among the files of all tasks
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "32M")]
    pub(super) pool_size: u64,
}

fn file_size(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        0 => Err("must be at least 1 byte".into()),
        size => u32::try_from(size).map_err(|_| format!("{text:?} is too large")),
    }
}

fn whole_blocks(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0..4096 => Err("must be at least 4K".into()),
        size => Ok(size),
    }
}
