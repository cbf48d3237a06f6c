//! Crashes, compared with prefixes of the operations.

use std::sync::Arc;

use disk::{Event, MemoryDevice, RecordingDevice};
use operations::waiting::WaitingPolicy;
use vfs::{FileSystem, Ino, RenameMode};

use super::{CACHE_BYTES, NEW, WaitingTrial};

/// Size of the large directory in blocks. By default, files wait in directories of 1024 blocks and more.
const LARGE_BLOCKS: u64 = 1_100;
/// Number of operations of a run.
const STEPS: u32 = 7_000;
/// Number of crashes of a run.
const CRASHES: usize = 6;

/// The result of crashes in a sequence of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// After each crash the image had the operations up to some moment.
    Kept,
    /// After a crash a file of the large directory was missing that was created before something that was there.
    Broken(String),
}

/// An operation. It stays visible: nothing is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Creates a file in the large directory.
    Create(u32),
    /// Makes a directory in the small one.
    Mkdir(u32),
    /// Renames a directory of the small one.
    Rename(u32),
}

impl Step {
    fn number(number: u32) -> Self {
        match number % 4 {
            0 | 2 => Self::Create(number),
            1 => Self::Mkdir(number),
            _ => Self::Rename(number - 2),
        }
    }

    fn run(self, fs: &dyn FileSystem, large: Ino, small: Ino) -> vfs::Result<()> {
        match self {
            Self::Create(number) => fs.create(large, &long_name(number), &NEW).map(drop),
            Self::Mkdir(number) => fs.mkdir(small, &name_of("made", number), &NEW).map(drop),
            Self::Rename(number) => {
                let (from, to) = (name_of("made", number), name_of("renamed", number));
                fs.rename((small, &from), (small, &to), RenameMode::Replace, NEW.parent_time)
            }
        }
    }

    fn is_visible(self, fs: &dyn FileSystem, large: Ino, small: Ino) -> bool {
        let has = |dir, name: Vec<u8>| fs.lookup(dir, &name).is_ok();
        match self {
            Self::Create(number) => has(large, long_name(number)),
            Self::Mkdir(number) => {
                has(small, name_of("made", number)) || has(small, name_of("renamed", number))
            }
            Self::Rename(number) => has(small, name_of("renamed", number)),
        }
    }
}

fn name_of(what: &str, number: u32) -> Vec<u8> {
    format!("{what} {number}").into_bytes()
}

/// Returns a name so long that few names make a directory large.
fn long_name(number: u32) -> Vec<u8> {
    format!("{number:0>240}").into_bytes()
}

/// Crashes a run at points distributed over it, and compares each image with the prefixes of the operations. Files may
/// wait in a large directory according to `policy`. Other operations must be a prefix in any case.
///
/// # Panics
/// If anything except the order of files in a large directory is wrong, or if files may wait and none does.
pub fn order(trial: &WaitingTrial<'_>, policy: Option<WaitingPolicy>) -> Order {
    let base = with_large_directory(trial);
    let recording = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let mounted = (trial.open)(recording.clone(), CACHE_BYTES, policy).unwrap();
    let fs = mounted.file_system();
    let [large, small] =
        ["large", "small"].map(|name| fs.lookup(fs.root(), name.as_bytes()).unwrap());
    let mut waiting_max = 0;
    for number in 0..STEPS {
        Step::number(number).run(fs, large, small).unwrap();
        waiting_max = waiting_max.max(mounted.files_waiting());
    }
    assert_eq!(waiting_max > 0, policy.is_some(), "{}: {waiting_max} files waited", trial.name);
    let events = recording.take();
    let flushes = (0..events.len()).filter(|&at| events[at] == Event::Flush);
    let mut ends: Vec<usize> = flushes.map(|at| at + 1).chain([events.len()]).collect();
    assert!(ends.len() > 4, "{}: {} moments to stop at", trial.name, ends.len());
    // The last ones first: files wait only after many consecutive creates.
    ends.reverse();
    let mut order = Order::Kept;
    for &end in ends.iter().step_by(ends.len().div_ceil(CRASHES)) {
        let image = base.fork();
        events[..end].iter().for_each(|event| event.replay(&image).unwrap());
        if let Some(why) = compare(trial, &image) {
            order = Order::Broken(format!("{end} of {} events: {why}", events.len()));
        }
    }
    order
}

fn with_large_directory(trial: &WaitingTrial<'_>) -> MemoryDevice {
    let device = Arc::new((trial.make)());
    let mounted = (trial.open)(device.clone(), CACHE_BYTES, None).unwrap();
    let fs = mounted.file_system();
    fs.mkdir(fs.root(), b"small", &NEW).unwrap();
    let large = fs.mkdir(fs.root(), b"large", &NEW).unwrap();
    let block_bytes = u64::from(fs.statfs().unwrap().block_size);
    for number in STEPS.. {
        fs.create(large, &long_name(number), &NEW).unwrap();
        let is_full_round = number % 100 == 0;
        if is_full_round && fs.attributes(large).unwrap().size / block_bytes >= LARGE_BLOCKS {
            break;
        }
    }
    mounted.close().unwrap();
    device.fork()
}

/// Returns the first operation that is missing before one that is present.
fn compare(trial: &WaitingTrial<'_>, image: &MemoryDevice) -> Option<String> {
    let device = Arc::new(image.fork());
    let mounted = (trial.open)(device.clone(), CACHE_BYTES, None).unwrap();
    let fs = mounted.file_system();
    let [large, small] =
        ["large", "small"].map(|name| fs.lookup(fs.root(), name.as_bytes()).unwrap());
    let steps: Vec<Step> = (0..STEPS).map(Step::number).collect();
    let is_there: Vec<bool> = steps.iter().map(|step| step.is_visible(fs, large, small)).collect();
    mounted.close().unwrap();
    (trial.check)(&device);
    let numbers = || (0..steps.len()).rev();
    let is_create = |&number: &usize| matches!(steps[number], Step::Create(_));
    let last = numbers().find(|&number| is_there[number])?;
    let last_other = numbers().filter(|n| !is_create(n)).find(|&number| is_there[number]);
    let missing: Vec<usize> = (0..last).filter(|&number| !is_there[number]).collect();
    let wrong = missing.iter().find(|n| !is_create(n) && Some(**n) < last_other);
    assert_eq!(wrong, None, "{}: operation {last_other:?} is there, this one is not", trial.name);
    let first = *missing.first()?;
    Some(format!(
        "operation {last} is there ({:?}), {first} is not ({:?})",
        steps[last], steps[first]
    ))
}
