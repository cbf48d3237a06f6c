//! Crashes, compared with prefixes of the operations.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use disk::{Event, MemoryDevice, RecordingDevice};
use operations::deferred_create::DeferPolicy;
use vfs::{FileSystem, Ino, NewInode, RenameMode};

use super::{CACHE_BYTES, NEW, WaitingTrial};
use crate::trial::entries;

/// Size of the large directory in blocks. [`DeferPolicy::LARGE`] defers creates in directories of 1024 blocks and more.
const LARGE_BLOCKS: u64 = 1_100;
/// Number of operations of a run.
const STEPS: u32 = 7_000;
/// Number of crashes of a run.
const CRASHES: usize = 6;
/// Number of operations between two changes of names in the large directory. Files of a shorter streak are not deferred
/// again.
const CHANGE_EVERY: u32 = 500;

/// Owner of the inode that operation 0 makes.
const OWNER_FIRST: u32 = 1_000;

/// The result of crashes in a sequence of operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// After each crash the image had the operations up to some moment.
    Kept,
    /// After a crash a file of the large directory was missing that was created before something that was there.
    Broken(String),
}

/// A directory of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Dir {
    Large,
    Small,
}

/// Directory and name of an entry.
type DirentKey = (Dir, Vec<u8>);

/// An operation. The owner of an inode is the number of the operation that made it, plus [`OWNER_FIRST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderedOperation {
    /// Creates a file in the large directory.
    Create(u32),
    /// Makes a directory in the small one.
    Mkdir(u32),
    /// Renames a directory of the small one.
    RenameDirectory(u32),
    /// Gives a file of the large directory another name there.
    Link(u32),
    /// Removes a file of the large directory.
    Remove(u32),
    /// Renames a file in the large directory.
    Rename(u32),
    /// Moves a file from the large directory to the small one.
    Move(u32),
}

impl OrderedOperation {
    fn number(number: u32) -> Self {
        let (last, earlier) = (number.wrapping_sub(1), number.wrapping_sub(CHANGE_EVERY + 3));
        match (number % CHANGE_EVERY, number % 4) {
            (499, _) => match number / CHANGE_EVERY % 4 {
                0 => Self::Rename(last),
                1 => Self::Remove(last),
                2 => Self::Move(last),
                _ => Self::Link(earlier),
            },
            (_, 0 | 2) => Self::Create(number),
            (_, 1) => Self::Mkdir(number),
            _ => Self::RenameDirectory(number - 2),
        }
    }

    /// Returns the entry that the operation removes, and the one that it adds with its owner.
    fn change(self) -> (Option<DirentKey>, Option<(DirentKey, u32)>) {
        let made = |dir, name, number| (None, Some(((dir, name), number)));
        let moved = |number, to| (Some((Dir::Large, long_name(number))), Some((to, number)));
        match self {
            Self::Create(number) => made(Dir::Large, long_name(number), number),
            Self::Mkdir(number) => made(Dir::Small, name_of("made", number), number),
            Self::RenameDirectory(number) => (
                Some((Dir::Small, name_of("made", number))),
                Some(((Dir::Small, name_of("renamed", number)), number)),
            ),
            Self::Link(number) => made(Dir::Large, other_name(number), number),
            Self::Remove(number) => (Some((Dir::Large, long_name(number))), None),
            Self::Rename(number) => moved(number, (Dir::Large, other_name(number))),
            Self::Move(number) => moved(number, (Dir::Small, name_of("moved", number))),
        }
    }

    fn run(self, fs: &dyn FileSystem, dirs: &Dirs) -> vfs::Result<()> {
        let owned = |number| NewInode { uid: OWNER_FIRST + number, ..NEW };
        let (from, to) = self.change();
        match (self, from, to) {
            (Self::Create(number), _, Some(((_, name), _))) => {
                fs.create(dirs.large, &name, &owned(number)).map(drop)
            }
            (Self::Mkdir(number), _, Some(((_, name), _))) => {
                fs.mkdir(dirs.small, &name, &owned(number)).map(drop)
            }
            (Self::Link(number), _, Some(((_, name), _))) => {
                let ino = fs.lookup(dirs.large, &long_name(number))?;
                fs.link(ino, dirs.large, &name, NEW.parent_time)
            }
            (_, Some((dir, from)), Some(((to_dir, to), _))) => {
                let (from, to) = ((dirs.ino(dir), &*from), (dirs.ino(to_dir), &*to));
                fs.rename(from, to, RenameMode::Replace, NEW.parent_time)
            }
            (_, Some((dir, name)), None) => fs.unlink(dirs.ino(dir), &name, NEW.parent_time),
            (step, ..) => unreachable!("{step:?}"),
        }
    }
}

/// The two directories of a run.
struct Dirs {
    large: Ino,
    small: Ino,
}

impl Dirs {
    fn of(fs: &dyn FileSystem) -> Self {
        let [large, small] =
            ["large", "small"].map(|name| fs.lookup(fs.root(), name.as_bytes()).unwrap());
        Self { large, small }
    }

    fn ino(&self, dir: Dir) -> Ino {
        match dir {
            Dir::Large => self.large,
            Dir::Small => self.small,
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

/// Returns the second name of a file of the large directory.
fn other_name(number: u32) -> Vec<u8> {
    format!("other {number:0>200}").into_bytes()
}

/// Crashes a run at points distributed over it, and compares each image with the prefixes of the operations. Creates in
/// a large directory are deferred according to `policy`. All other operations must be a prefix in any case.
///
/// # Panics
/// If anything except the order of files in a large directory is wrong, or if files may wait and none does.
pub fn order(trial: &WaitingTrial<'_>, policy: Option<DeferPolicy>) -> Order {
    let base = with_large_directory(trial);
    let recording = Arc::new(RecordingDevice::new(Arc::new(base.fork())));
    let mounted = (trial.open)(recording.clone(), CACHE_BYTES, policy).unwrap();
    let fs = mounted.file_system();
    let dirs = Dirs::of(fs);
    let mut deferred_max = 0;
    for number in 0..STEPS {
        OrderedOperation::number(number).run(fs, &dirs).unwrap();
        deferred_max = deferred_max.max(mounted.files_deferred());
    }
    assert_eq!(deferred_max > 0, policy.is_some(), "{}: {deferred_max} deferred", trial.name);
    let events = recording.take();
    let flushes = (0..events.len()).filter(|&at| events[at] == Event::Flush);
    let mut ends: Vec<usize> = flushes.map(|at| at + 1).chain([events.len()]).collect();
    assert!(ends.len() > 4, "{}: {} moments to stop at", trial.name, ends.len());
    // The last ones first: creates are deferred only after many consecutive ones.
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

/// Compares an image with the prefixes of the operations. Returns the difference from the nearest prefix if files of
/// the large directory are missing.
fn compare(trial: &WaitingTrial<'_>, image: &MemoryDevice) -> Option<String> {
    let device = Arc::new(image.fork());
    let mounted = (trial.open)(device.clone(), CACHE_BYTES, None).unwrap();
    let mut found = entries_of(mounted.file_system());
    mounted.close().unwrap();
    (trial.check)(&device);
    // Entries that the prefix has and the image does not have: those of creates, and others.
    let (mut missing, mut wrong) = (HashSet::new(), HashSet::new());
    let mut nearest: Option<(u32, usize)> = None;
    for number in 0..=STEPS {
        // Entries left in `found` are not in the prefix.
        if found.is_empty() && wrong.is_empty() {
            if missing.is_empty() {
                return None;
            }
            nearest =
                nearest.filter(|(_, few)| *few <= missing.len()).or(Some((number, missing.len())));
        }
        let step = OrderedOperation::number(number);
        let (removed, added) = step.change();
        if let Some(place) = removed
            && !missing.remove(&place)
            && !wrong.remove(&place)
        {
            found.insert(place, u32::MAX);
        }
        if let Some((place, owner)) = added {
            if found.get(&place) == Some(&owner) {
                found.remove(&place);
            } else if matches!(step, OrderedOperation::Create(_)) {
                missing.insert(place);
            } else {
                wrong.insert(place);
            }
        }
    }
    let Some((number, missing)) = nearest else {
        panic!(
            "{}: the image is no prefix, even without creates of the large directory",
            trial.name
        )
    };
    Some(format!("{missing} of the first {number} operations are missing"))
}

/// Returns the entries of the run, with the owners of their inodes.
fn entries_of(fs: &dyn FileSystem) -> HashMap<DirentKey, u32> {
    let dirs = Dirs::of(fs);
    let mut found = HashMap::new();
    for dir in [Dir::Large, Dir::Small] {
        for (name, ino) in entries(fs, dirs.ino(dir)) {
            let owner = fs.attributes(ino).unwrap().uid;
            // The other files were there before the run.
            if let Some(number) = owner.checked_sub(OWNER_FIRST) {
                found.insert((dir, name), number);
            }
        }
    }
    found
}
