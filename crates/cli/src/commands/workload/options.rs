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
    /// Files to make in one directory, one run for each number
    #[arg(
        short = 'n',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = count,
        default_value = "10k,20k,100k,200k,1M,2M"
    )]
    pub(super) files: Vec<u64>,

    /// Threads, each of which makes so many in a directory of its own
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "1")]
    pub(super) threads: u32,

    /// Open each file, make it durable and close it before the next
    #[arg(long)]
    pub(super) fsync: bool,

    /// Ways of finding room in a directory of memory:xfs, each of which takes part: tree, block-skip,
    /// reverse, forward, forward-decode, or all
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) free_index: Vec<String>,
}

/// Options of `remove`.
#[derive(Clone, Debug, Args)]
pub(crate) struct RemoveOptions {
    /// Files to remove from one directory, one run for each number
    #[arg(
        short = 'n',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = count,
        default_value = "10k,20k,100k,200k,1M,2M"
    )]
    pub(super) files: Vec<u64>,

    /// Threads, each of which removes so many from a directory of its own
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "1")]
    pub(super) threads: u32,

    /// Make the files again, and remove them from a cold cache
    #[arg(long)]
    pub(super) cold: bool,
}

/// Options of `change`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ChangeOptions {
    /// Files of a directory, one run for each number
    #[arg(
        short = 'n',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = count,
        default_value = "10k,100k"
    )]
    pub(super) files: Vec<u64>,

    /// Threads, each of which works in directories of its own
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "1")]
    pub(super) threads: u32,
}

/// Options of `fs-mark`, with the letters that `fs_mark` has for them.
#[derive(Clone, Debug, Args)]
pub(crate) struct FsMarkOptions {
    /// Threads, each with a directory and (on XFS) an allocation group of its own
    /// [default: one per processor]
    #[arg(short, long, value_name = "N", value_parser = small_count)]
    pub(super) threads: Option<u32>,

    /// Files of each thread in each loop
    #[arg(short = 'n', long, value_name = "N", value_parser = small_count, default_value = "100000")]
    pub(super) files: u32,

    /// Loops
    #[arg(short = 'L', long, value_name = "N", value_parser = small_count, default_value = "8")]
    pub(super) loops: u32,

    /// Subdirectories of each thread's directory, of which the time chooses one for 180 seconds
    #[arg(short = 'D', long, value_name = "N", value_parser = small_count, default_value = "10000")]
    pub(super) subdirectories: u32,

    /// Make everything again, and remove it from a cold cache
    #[arg(long)]
    pub(super) cold: bool,

    /// Rename all files before they are removed: in their directories, then into another one
    #[arg(long)]
    pub(super) rename: bool,

    /// Bytes of each file; there is only 0, as in the thread
    #[arg(
        short = 's',
        long = "size",
        value_name = "0",
        value_parser = clap::value_parser!(u8).range(0..=0),
        default_value = "0"
    )]
    _size: u8,

    /// What is synced; there is only 0, nothing, as in the thread
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
    /// Tree to walk: what is there (existing), one that is made up (generated, or generated:FILES), or a
    /// copy of the names below a DIRECTORY [default: existing for images and directories, generated:87k
    /// for memory: and kernel:]
    #[arg(long, value_name = "existing|generated[:FILES]|DIRECTORY")]
    pub(super) tree: Option<TreeOption>,

    /// Walks, of which the first finds cold caches
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
    /// Threads, each with files of its own; one run for each number
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = small_count,
        default_value = "1,2,4,8,16,32,64,128"
    )]
    pub(super) threads: Vec<u32>,

    /// Bytes of each file, which are the truncations it takes to empty it
    #[arg(short = 's', long, value_name = "SIZE", value_parser = file_size, default_value = "4K")]
    pub(super) file_size: u32,

    /// Files that each thread truncates, one after the other
    #[arg(short = 'n', long, value_name = "N", value_parser = small_count, default_value = "16")]
    pub(super) files: u32,
}

/// Options of `stress-unlink`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StressUnlinkOptions {
    /// Threads, each with a directory of its own; one run for each number
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = small_count,
        default_value = "1,2,4,8,16,32,64,128"
    )]
    pub(super) threads: Vec<u32>,

    /// Files that each thread makes and removes
    #[arg(short = 'n', long, value_name = "N", value_parser = small_count, default_value = "100")]
    pub(super) files: u32,
}

/// Options of `fserver`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FserverOptions {
    /// Tasks at the same time, each a thread; one run for each number
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = small_count,
        default_value = "1,25,49,73,97,121,145,169,193"
    )]
    pub(super) tasks: Vec<u32>,

    /// Jobs of each task, drawn by their weights
    #[arg(short, long, value_name = "N", value_parser = small_count, default_value = "100")]
    pub(super) jobs: u32,

    /// Bytes of a file that jobs read and write, beside its share of the pool; at least 4K
    #[arg(short = 's', long, value_name = "SIZE", value_parser = whole_blocks, default_value = "1M")]
    pub(super) file_size: u64,

    /// Bytes that all tasks share out among their files
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, default_value = "32M")]
    pub(super) pool_size: u64,
}

fn file_size(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        0 => Err("there must be at least 1 byte".into()),
        size => u32::try_from(size).map_err(|_| format!("{text:?} is too large")),
    }
}

fn whole_blocks(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0..4096 => Err("there must be at least 4K".into()),
        size => Ok(size),
    }
}
