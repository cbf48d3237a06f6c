//! At least as many files survive a repair, with the path and contents that they had before the damage, as survive
//! `xfs_repair` on a copy.
//!
//! `DISKWRIGHT_DAMAGE_BATCHES=FILE[,COUNT]` runs batches of 1,000 cases, and writes one line per batch to the file,
//! starting with the first batch that is not in the file. `DISKWRIGHT_DAMAGE_SEED=SEED` runs one case.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use disk::MemoryDevice;
use parking_lot::Mutex;
use testkit::crash::{read_image, write_image};
use workload::tree::{Inode, Tree};
use xfs::{OpenOptions, Xfs};

use super::subject::repaired;
use super::{Image, much, rich};
use crate::common::image::{device, golden};

/// Number of cases of a batch.
const BATCH: u64 = 1000;
/// Number of cases in parallel: `xfs_repair` takes most of the time.
const THREADS: usize = 2;

/// An image to be damaged, with its tree.
struct Base {
    image: Image,
    tree: Tree,
}

/// Returns all images to be damaged, made once.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let golden = crate::check_damage::IMAGES.map(|name| (name, golden(name)));
        let all = golden.into_iter().chain(rich::all());
        let base = |(name, bytes): (&'static str, Vec<u8>)| {
            let tree = tree(&device(&bytes)).unwrap_or_else(|error| panic!("{name}: {error}"));
            Base { image: Image::new(name, bytes), tree }
        };
        all.map(base).collect()
    })
}

fn tree(device: &MemoryDevice) -> Result<Tree, String> {
    let fs = Xfs::open(Arc::new(device.fork()), &OpenOptions::default());
    Tree::of(&fs.map_err(|error| error.to_string())?)
}

/// Returns the number of paths with unchanged contents.
fn survivors(before: &Tree, after: &Tree) -> usize {
    let is_same = |before: &Inode, after: &Inode| {
        before.attributes.file_type == after.attributes.file_type
            && (&before.contents, &before.target, &before.xattrs)
                == (&after.contents, &after.target, &after.xattrs)
    };
    let survives =
        |path: &&Vec<u8>| before.get(path).zip(after.get(path)).is_some_and(|(a, b)| is_same(a, b));
    before.paths.keys().filter(survives).count()
}

/// Returns an image repaired by `xfs_repair`.
fn repaired_by_xfsprogs(damaged: &MemoryDevice) -> Option<MemoryDevice> {
    let home = testkit::scratch();
    let path = home.path().join("image");
    write_image(damaged, &path).ok()?;
    let run = |options: &[&str]| {
        let mut command = testkit::command("xfs_repair");
        command.args(["-f", "-P", "-o", "phase2_threads=1"]).args(options).arg(&path);
        command.output().is_ok_and(|output| output.status.success())
    };
    // A log that it does not replay is emptied.
    (run(&[]) || run(&["-L"])).then(|| read_image(&path).ok())?
}

/// Repairs a damaged image with both programs, and compares the results.
///
/// # Errors
/// If fewer files survive the own repair.
fn compare(base: &Base, damaged: &MemoryDevice) -> Result<(), String> {
    let ours = repaired(damaged.fork())?;
    let found = tree(&ours.device);
    let count = found.as_ref().map_or(0, |found| survivors(&base.tree, found));
    if count == base.tree.paths.len() {
        return Ok(());
    }
    let Some(theirs) = repaired_by_xfsprogs(damaged) else { return Ok(()) };
    let theirs = tree(&theirs).map_or(0, |found| survivors(&base.tree, &found));
    if theirs <= count {
        return Ok(());
    }
    let left = ours.left.len();
    let error = found.err().unwrap_or_default();
    Err(format!(
        "{count} of {} survive, {theirs} with xfs_repair; {left} findings left {error}",
        base.tree.paths.len()
    ))
}

/// Runs one case.
///
/// # Errors
/// The damage, and the loss.
fn case(seed: u64) -> Result<(), String> {
    let bases = bases();
    let base = &bases[seed as usize % bases.len()];
    let mut random = fastrand::Rng::with_seed(seed);
    let damaged = base.image.base.fork();
    let Some((_, place)) = much(&base.image, &damaged, &mut random) else { return Ok(()) };
    compare(base, &damaged)
        .map_err(|fault| format!("{}, seed {seed}: {place}\n  {fault}", base.image.name))
}

/// Runs cases. Returns the seeds with worse results, and the reasons.
fn run(seeds: std::ops::Range<u64>) -> Vec<(u64, String)> {
    let (next, worse) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(fault) = case(seed) {
                        eprintln!("WORSE {fault}");
                        worse.lock().push((seed, fault));
                    }
                }
            });
        }
    });
    worse.into_inner()
}

/// Runs batches that are not in the file yet.
fn batches(file: &Path, count: u64) -> Vec<(u64, String)> {
    let done = std::fs::read_to_string(file).map_or(0, |text| text.lines().count() as u64);
    let mut all = Vec::new();
    for batch in done..done + count {
        let worse = run(batch * BATCH..(batch + 1) * BATCH);
        let seeds: Vec<String> = worse.iter().map(|(seed, _)| seed.to_string()).collect();
        let mut file = File::options().create(true).append(true).open(file).unwrap();
        writeln!(file, "batch {batch}: {BATCH} cases, {} worse: {}", worse.len(), seeds.join(" "))
            .unwrap();
        all.extend(worse);
    }
    all
}

/// Seeds of cases in which fewer files once survived: owners of directory blocks, magic numbers of inodes in chunks
/// that are searched for, and keys in the roots of maps.
const WORSE_ONCE: [u64; 5] = [254, 434, 1391, 1505, 1654];

#[test]
fn what_was_worse_once_is_not() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let worse: Vec<String> = WORSE_ONCE.iter().filter_map(|seed| case(*seed).err()).collect();
    assert!(worse.is_empty(), "{}", worse.join("\n"));
}

#[test]
fn as_many_files_survive_as_with_xfs_repair() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let asked = |name: &str| std::env::var(name).ok();
    let worse = if let Some(seed) = asked("DISKWRIGHT_DAMAGE_SEED") {
        let seed = seed.parse().expect("a seed");
        run(seed..seed + 1)
    } else if let Some(asked) = asked("DISKWRIGHT_DAMAGE_BATCHES") {
        let (file, count) = asked.split_once(',').unwrap_or((&asked, "1"));
        batches(Path::new(file), count.parse().expect("a number of batches"))
    } else {
        run(0..testkit::effort(24, 48, 2 * BATCH))
    };
    let shown: Vec<&str> = worse.iter().map(|(_, fault)| &fault[..]).collect();
    assert!(worse.is_empty(), "{} are worse:\n{}", worse.len(), shown.join("\n"));
}
