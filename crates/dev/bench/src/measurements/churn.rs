//! Random changes of one half-empty directory with names of various lengths: the cost of finding space for a name when
//! it is unpredictable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::report::Summary;
use disk::{BlockDevice, MemoryDevice};
use vfs::{FileSystem, Ino, NewInode, Timestamp};
use xfs::mkfs::PreviousContents;
use xfs::{FreeIndexStrategy, Xfs};

use crate::measurements::options::{ChurnOptions, Removed};
use crate::measurements::table::Table;

/// Number of changes generated at a time, outside of the timing.
const BATCH: usize = 1000;
/// Size of an image per file, in bytes.
const BYTES_PER_FILE: u64 = 2400;
/// Size of the metadata cache in bytes: a large directory stays in memory entirely, as in the kernel.
const CACHE_BYTES: usize = 2 << 30;
/// Time of all new files.
const TIME: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 123_456_789 };
/// A new file or directory, which also sets the time of its directory.
const NEW: NewInode =
    NewInode { permissions: 0o755, uid: 0, gid: 0, time: TIME, parent_time: Some(TIME) };

/// Changes a directory with every strategy. Returns a table of times.
pub(crate) fn run(options: &ChurnOptions) -> Result<Table, String> {
    let mut table =
        Table::new(&["way", "runs", "insert and remove, us", "spread", "blocks", "after"]);
    for (strategy, name) in strategies(&options.only) {
        let mut times = Vec::new();
        let mut blocks = (0, 0);
        for round in 0..options.rounds {
            cli::terminal::message(&format_args!("{name}, round {round}"));
            let outcome = measure(strategy, options)?;
            times.push(outcome.per_pair);
            blocks = (outcome.blocks_before, outcome.blocks_after);
        }
        let summary = Summary::of(&times).ok_or("no rounds")?;
        table.row(vec![
            name.to_owned(),
            summary.runs.to_string(),
            format!("{:.2}", summary.median_s * 1e6),
            format!("{:.0} %", summary.spread * 100.0),
            blocks.0.to_string(),
            blocks.1.to_string(),
        ]);
    }
    Ok(table)
}

/// Returns the strategies whose name contains one of `wanted`, with their names; all if it is empty.
fn strategies(wanted: &[String]) -> Vec<(FreeIndexStrategy, &'static str)> {
    let is_wanted =
        |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let all = FreeIndexStrategy::ALL.map(|strategy| (strategy, strategy.name()));
    all.into_iter().filter(|(_, name)| is_wanted(name)).collect()
}

/// Creates a file system of `bytes` bytes in memory, with parent pointers and the fastest strategy.
fn make(bytes: u64) -> Result<(Xfs, Arc<MemoryDevice>), String> {
    let device = Arc::new(MemoryDevice::new(bytes));
    let mut options = xfs::mkfs::Options::new(bytes);
    options.features = xfs::mkfs::FeatureChange::parse_list("parent").map_err(text)?;
    let layout = xfs::mkfs::plan(&options).map_err(text)?;
    xfs::mkfs::format(&*device, &layout, PreviousContents::Zeros).map_err(text)?;
    let mut fs = Xfs::open_in_progress(device.clone(), CACHE_BYTES).map_err(text)?;
    fs.set_free_index(FreeIndexStrategy::Tree);
    Ok((fs, device))
}

/// Finishes an image and checks it with xfs_repair.
fn judge(fs: Xfs, device: &MemoryDevice, path: &Path) -> Result<(), String> {
    fs.finish(None).map_err(text)?;
    drop(fs);
    let file = File::create(path).map_err(text)?;
    let outcome = device.for_each_part(|offset, bytes| file.write_all_at(bytes, offset));
    outcome.and_then(|()| file.set_len(device.len())).map_err(text)?;
    testkit::xfs_repair(path);
    std::fs::remove_file(path).map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

struct ChurnResult {
    /// Time of creating and removing one name each.
    per_pair: Duration,
    blocks_before: u64,
    blocks_after: u64,
}

/// Derives a name of 8 to 200 bytes from a number.
fn name_of(number: u64, name: &mut Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let len = random.usize(8..=200);
    name.clear();
    name.resize_with(len, || random.alphanumeric() as u8);
}

fn measure(strategy: FreeIndexStrategy, options: &ChurnOptions) -> Result<ChurnResult, String> {
    let bytes = u64::from(options.entries) * BYTES_PER_FILE + (1 << 30);
    let bytes = bytes.next_multiple_of(1 << 20);
    // Filled and half emptied with the fast strategy, so that all strategies start with the same directory.
    let (mut fs, device) = make(bytes)?;
    let dir = fs.mkdir(fs.root(), b"d", &NEW).map_err(text)?;
    let mut live = half_empty(&fs, dir, options)?;
    fs.set_free_index(strategy);
    let blocks_before = blocks(&fs, dir)?;
    let (total, pairs) = change(&fs, dir, &mut live, options)?;
    let blocks_after = blocks(&fs, dir)?;
    let path = options.scratch.join(format!("diskwright-bench-churn-{}.img", std::process::id()));
    judge(fs, &device, &path)?;
    Ok(ChurnResult { per_pair: total / pairs.max(1), blocks_before, blocks_after })
}

fn blocks(fs: &Xfs, dir: Ino) -> Result<u64, String> {
    Ok(fs.attributes(dir).map_err(text)?.blocks_512 / 8)
}

/// Fills a directory and removes half of the names. Returns the numbers of the remaining ones.
fn half_empty(fs: &Xfs, dir: Ino, options: &ChurnOptions) -> Result<Vec<u64>, String> {
    // The number of remaining names is the same in each case.
    let entries = match options.removed {
        Removed::None => options.entries / 2,
        Removed::Random | Removed::Oldest => options.entries,
    };
    let mut name = Vec::new();
    for number in 0..u64::from(entries) {
        name_of(number, &mut name);
        fs.create(dir, &name, &NEW).map_err(text)?;
    }
    let mut live: Vec<u64> = (0..u64::from(entries)).collect();
    match options.removed {
        Removed::Random => fastrand::Rng::with_seed(1).shuffle(&mut live),
        Removed::Oldest => live.reverse(),
        Removed::None => return Ok(live),
    }
    for number in live.split_off(entries as usize / 2) {
        name_of(number, &mut name);
        fs.unlink(dir, &name, Some(TIME)).map_err(text)?;
    }
    Ok(live)
}

/// Creates and removes names alternately until the required number or the time limit. Returns the time and the number
/// of pairs.
fn change(
    fs: &Xfs,
    dir: Ino,
    live: &mut [u64],
    options: &ChurnOptions,
) -> Result<(Duration, u32), String> {
    let mut random = fastrand::Rng::with_seed(2);
    let (mut total, mut pairs, mut next) = (Duration::ZERO, 0_u32, u64::from(options.entries));
    let limit = Duration::from_secs(options.seconds_max);
    while pairs < options.pairs && total < limit {
        let mut changes = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let at = match options.removed {
                Removed::None => live.len() - 1,
                Removed::Random | Removed::Oldest => random.usize(..live.len()),
            };
            let (mut old, mut new) = (Vec::new(), Vec::new());
            name_of(live[at], &mut old);
            name_of(next, &mut new);
            live[at] = next;
            next += 1;
            changes.push((old, new));
        }
        let start = Instant::now();
        for (old, new) in &changes {
            fs.create(dir, new, &NEW).map_err(text)?;
            fs.unlink(dir, old, Some(TIME)).map_err(text)?;
        }
        total += start.elapsed();
        pairs += BATCH as u32;
    }
    Ok((total, pairs))
}
