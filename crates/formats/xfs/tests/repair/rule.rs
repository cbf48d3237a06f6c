//! At least as many files survive a repair, with the path and contents that they had before the damage, as survive
//! `xfs_repair` on a copy.
//!
//! `DISKWRIGHT_DAMAGE_BATCHES=FILE[,COUNT]` runs batches of 1,000 cases, and writes one line per batch to the file,
//! starting with the first batch that is not in the file. `DISKWRIGHT_DAMAGE_SEED=SEED` runs one case.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use disk::{BlockDevice, MemoryDevice};
use parking_lot::Mutex;
use testkit::crash::{read_image, write_image};
use testkit::fs_tree::{FsTree, Inode};
use vfs::FileType;
use xfs::{OpenOptions, Xfs};

use super::subject::repaired;
use super::{RepairSample, much, rich};
use crate::common::image::{device, golden};

/// Number of cases of a batch.
const BATCH: u64 = 1000;
/// Number of cases in parallel: `xfs_repair` takes most of the time.
const THREADS: usize = 2;

/// An image to be damaged, with its tree.
pub(super) struct Base {
    pub(super) image: RepairSample,
    tree: FsTree,
}

impl Base {
    pub(super) fn new(name: &'static str, bytes: Vec<u8>) -> Self {
        let tree = tree(&device(&bytes)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { image: RepairSample::new(name, bytes), tree }
    }

    /// Returns the tree of the valid image.
    pub(super) fn tree(&self) -> &FsTree {
        &self.tree
    }
}

/// Returns all images to be damaged, made once.
fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        let golden = crate::check_damage::IMAGES.map(|name| (name, golden(name)));
        let all = golden.into_iter().chain(rich::all());
        all.map(|(name, bytes)| Base::new(name, bytes)).collect()
    })
}

pub(super) fn tree(device: &MemoryDevice) -> Result<FsTree, String> {
    let fs = Xfs::open(Arc::new(device.fork()), &OpenOptions::default());
    FsTree::of(&fs.map_err(|error| error.to_string())?)
}

/// Returns the paths with unchanged contents.
fn survivors<'a>(before: &'a FsTree, after: &FsTree) -> BTreeSet<&'a [u8]> {
    let is_same = |before: &Inode, after: &Inode| {
        before.attributes.file_type == after.attributes.file_type
            && (&before.contents, &before.target, &before.xattrs)
                == (&after.contents, &after.target, &after.xattrs)
    };
    let survives =
        |path: &&Vec<u8>| before.get(path).zip(after.get(path)).is_some_and(|(a, b)| is_same(a, b));
    before.paths.keys().filter(survives).map(|path| &path[..]).collect()
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
pub(super) fn compare(base: &Base, damaged: &MemoryDevice) -> Result<(), String> {
    let ours = repaired(damaged.fork())?;
    let found = tree(&ours.device);
    let kept = found.as_ref().map_or_else(|_| BTreeSet::new(), |tree| survivors(&base.tree, tree));
    let all = base.tree.paths.len();
    if kept.len() == all {
        return Ok(());
    }
    let Some(theirs) = repaired_by_xfsprogs(damaged) else { return Ok(()) };
    let theirs = tree(&theirs);
    let kept_by_theirs =
        theirs.as_ref().map_or_else(|_| BTreeSet::new(), |tree| survivors(&base.tree, tree));
    if kept_by_theirs.len() <= kept.len() {
        return Ok(());
    }
    let lost = kept_by_theirs.difference(&kept).take(5);
    let lost: Vec<String> = lost.map(|path| path.escape_ascii().to_string()).collect();
    let left = super::shown(&ours.left);
    let error = found.err().unwrap_or_default();
    Err(format!(
        "{} of {all} survive, {} with xfs_repair; left: {left} {error}; lost: {}",
        kept.len(),
        kept_by_theirs.len(),
        lost.join(" ")
    ))
}

/// Runs one case.
///
/// # Errors
/// The damage, and the loss.
pub(super) fn case(bases: &[Base], seed: u64) -> Result<(), String> {
    let base = &bases[seed as usize % bases.len()];
    let mut random = fastrand::Rng::with_seed(seed);
    let damaged = base.image.base.fork();
    let Some((_, place)) = much(&base.image, &damaged, &mut random) else { return Ok(()) };
    compare(base, &damaged)
        .map_err(|fault| format!("{}, seed {seed}: {place}\n  {fault}", base.image.name))
}

/// Runs cases. Returns the seeds with worse results, and the reasons.
fn run(bases: &[Base], seeds: std::ops::Range<u64>) -> Vec<(u64, String)> {
    let (next, worse) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Err(fault) = case(bases, seed) {
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
fn batches(bases: &[Base], file: &Path, count: u64) -> Vec<(u64, String)> {
    let done = std::fs::read_to_string(file).map_or(0, |text| text.lines().count() as u64);
    let mut all = Vec::new();
    for batch in done..done + count {
        let worse = run(bases, batch * BATCH..(batch + 1) * BATCH);
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
const WORSE_ONCE: [u64; 6] = [254, 434, 1391, 1505, 1654, 6032];

#[test]
fn former_failures_of_the_rule_pass() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    let worse: Vec<String> =
        WORSE_ONCE.iter().filter_map(|seed| case(bases(), *seed).err()).collect();
    assert!(worse.is_empty(), "{}", worse.join("\n"));
}

#[test]
fn as_many_files_survive_as_with_xfs_repair() {
    testkit::require!(Tool("mkfs.xfs"), Tool("xfs_repair"));
    judge(bases(), "DISKWRIGHT_DAMAGE", testkit::effort(24, 48, 2 * BATCH));
}

/// Runs `count` cases, or those that the variables with this prefix request.
///
/// # Panics
/// If fewer files survive our repair of a case.
#[track_caller]
pub(super) fn judge(bases: &[Base], prefix: &str, count: u64) {
    let asked = |name: &str| std::env::var(format!("{prefix}_{name}")).ok();
    let worse = if let Some(seed) = asked("SEED") {
        let seed = seed.parse().expect("a seed");
        run(bases, seed..seed + 1)
    } else if let Some(asked) = asked("BATCHES") {
        let (file, count) = asked.split_once(',').unwrap_or((&asked, "1"));
        batches(bases, Path::new(file), count.parse().expect("a number of batches"))
    } else {
        run(bases, 0..count)
    };
    let shown: Vec<&str> = worse.iter().map(|(_, fault)| &fault[..]).collect();
    assert!(worse.is_empty(), "{} are worse:\n{}", worse.len(), shown.join("\n"));
}

/// Returns the byte offsets of some data blocks of directories.
fn directory_blocks(image: &RepairSample) -> Vec<usize> {
    let is_data = |start: &usize| {
        let magic = &image.bytes[*start..*start + 4];
        magic == b"XDD3" || magic == b"XDB3"
    };
    let starts = image.layout.structures.iter().map(|structure| structure.start);
    let all: Vec<usize> = starts.filter(is_data).collect();
    all.iter().step_by(all.len().div_ceil(testkit::effort(1, 4, 40)).max(1)).copied().collect()
}

/// A wrong owner in a valid header loses no entry, even if it is another directory.
#[test]
fn a_directory_block_with_another_directory_as_its_owner_keeps_its_entries() {
    const OWNER: usize = 40;
    testkit::require!(Tool("mkfs.xfs"));
    let (mut tried, others_max) = (0, testkit::effort(1, 2, 2));
    for Base { image, tree: before } in bases() {
        let is_directory = |inode: &&Inode| inode.attributes.file_type == FileType::Directory;
        let directories = before.paths.keys().filter_map(|path| before.get(path));
        let inos: Vec<u64> =
            directories.filter(is_directory).map(|inode| inode.attributes.ino.0).collect();
        for start in directory_blocks(image) {
            let field = start + OWNER..start + OWNER + 8;
            let owner = u64::from_be_bytes(image.bytes[field.clone()].try_into().unwrap());
            let others = [inos.last(), inos.first()].into_iter().flatten();
            for other in others.filter(|other| **other != owner).take(others_max) {
                let damaged = image.base.fork();
                damaged.write_at(field.start as u64, &other.to_be_bytes()).unwrap();
                image.layout.seal(&damaged, field.clone());
                let ours = repaired(damaged).unwrap();
                let name = format!("{}: {start:#x} owned by {other}", image.name);
                assert!(ours.left.is_empty(), "{name}: {}", super::shown(&ours.left));
                let after = tree(&ours.device).unwrap();
                let kept = survivors(before, &after).len();
                assert_eq!(kept, before.paths.len(), "{name}");
                tried += 1;
            }
        }
    }
    assert!(tried > 5, "{tried}");
}
