//! Names in insert buffers are always found, and each checkpoint has all of them in the index.

use crate::changing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use changing::{SMALL_CACHE_BYTES, TINY_BUFFERS, TargetLayout, assert_clean, seem_finished};
use disk::{Access, BlockDevice, Fault, FaultyDevice, MemoryDevice};
use fastrand::Rng;
use testkit::require;
use vfs::{Error, FileSystem, Ino, NewInode, RenameMode, Timestamp};
use xfs::{InsertBuffering, OpenOptions, Xfs};

const TIME: Timestamp = Timestamp { sec: 1, nsec: 0 };
const NEW: NewInode =
    NewInode { permissions: 0o755, uid: 0, gid: 0, time: TIME, parent_time: None };

/// All names lead to one file, so without parent pointers.
const PLAIN: TargetLayout =
    TargetLayout { features: "-parent", size: 256 << 20, ..TargetLayout::DEFAULT };
const TINY: TargetLayout = TargetLayout { buffering: Some(TINY_BUFFERS), ..PLAIN };
/// Few leaves have buffers.
const SMALL: TargetLayout = TargetLayout {
    buffering: Some(InsertBuffering { leaves_min: 4, buffered_max: 12, bytes_max: 30 << 10 }),
    ..PLAIN
};
const USUAL: TargetLayout = TargetLayout {
    buffering: Some(InsertBuffering { leaves_min: 2, buffered_max: 32, bytes_max: 1 << 20 }),
    ..PLAIN
};

struct Trial {
    fs: Xfs,
    dir: Ino,
    files: [Ino; 2],
    names: BTreeMap<u64, Ino>,
    rng: Rng,
}

fn text(number: u64) -> Vec<u8> {
    format!("{number:020}-{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

impl Trial {
    fn new(
        layout: TargetLayout,
        device: Arc<dyn BlockDevice>,
        cache_bytes: usize,
        seed: u64,
    ) -> Self {
        let fs = layout.open(device, cache_bytes).unwrap();
        let dir = fs.mkdir(fs.root(), b"dir", &NEW).unwrap();
        let files = [&b"one"[..], b"two"].map(|name| fs.create(fs.root(), name, &NEW).unwrap());
        Self { fs, dir, files, names: BTreeMap::new(), rng: Rng::with_seed(seed) }
    }

    fn add(&mut self, number: u64) -> vfs::Result<()> {
        let file = self.files[self.rng.usize(..2)];
        self.fs.link(file, self.dir, &text(number), None)?;
        self.names.insert(number, file);
        Ok(())
    }

    /// Returns a number with a name, near a random one.
    fn any(&mut self, below: u64) -> Option<u64> {
        let from = self.rng.u64(..below);
        let after = self.names.range(from..).next();
        after.or_else(|| self.names.iter().next()).map(|(number, _)| *number)
    }

    /// Adds, removes, renames and replaces names, mostly the latest ones.
    fn mix(&mut self, steps: usize, below: u64) {
        let mut last = 0;
        for _ in 0..steps {
            let new = self.rng.u64(..below);
            let Some(old) = self.any(below) else { return };
            match self.rng.u8(..10) {
                0..4 => match self.add(new) {
                    Err(Error::Exists) => assert!(self.names.contains_key(&new)),
                    outcome => {
                        outcome.unwrap();
                        last = new;
                    }
                },
                4..7 => {
                    let gone = if self.names.contains_key(&last) { last } else { old };
                    self.fs.unlink(self.dir, &text(gone), None).unwrap();
                    self.names.remove(&gone);
                    assert!(self.fs.unlink(self.dir, &text(gone), None).is_err());
                }
                7 => {
                    let (from, to) = ((self.dir, &text(old)[..]), (self.dir, &text(new)[..]));
                    self.fs.rename(from, to, RenameMode::Replace, None).unwrap();
                    // Two names of one file are not changed by a rename.
                    if self.names.get(&new) != self.names.get(&old)
                        || !self.names.contains_key(&new)
                    {
                        let file = self.names.remove(&old).unwrap();
                        self.names.insert(new, file);
                    }
                    last = new;
                }
                8 => {
                    let file = self.files[self.rng.usize(..2)];
                    let name = if self.names.contains_key(&last) { last } else { old };
                    self.fs.link_over(file, self.dir, &text(name), None).unwrap();
                    self.names.insert(name, file);
                }
                _ => assert!(matches!(self.add(old), Err(Error::Exists)), "{old}"),
            }
        }
    }

    #[track_caller]
    fn check(&self, fs: &Xfs) {
        for (number, ino) in &self.names {
            let found = fs.lookup(self.dir, &text(*number));
            assert_eq!(found.unwrap_or_else(|e| panic!("{number}: {e}")), *ino, "{number}");
        }
        self.check_list(fs);
    }

    #[track_caller]
    fn check_list(&self, fs: &Xfs) {
        let mut listed = 0;
        fs.readdir(self.dir, vfs::Cookie(0), &mut |_| {
            listed += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(listed, self.names.len() + 2);
    }

    /// Checks that the device has the whole directory after a checkpoint.
    fn check_checkpoint(&self, device: &MemoryDevice) {
        self.fs.sync().unwrap();
        let copy = device.fork();
        seem_finished(&copy);
        assert_clean(&copy);
        let options = OpenOptions { norecovery: true, ..OpenOptions::default() };
        self.check(&Xfs::open(Arc::new(copy), &options).unwrap());
    }
}

#[test]
fn every_checkpoint_has_all_names() {
    require!(Tool("xfs_repair"));
    for (layout, seed) in [(TINY, 1), (SMALL, 2), (USUAL, 3)] {
        let device = Arc::new(layout.make());
        let mut trial = Trial::new(layout, device.clone(), SMALL_CACHE_BYTES * 4, seed);
        for round in 1..=testkit::effort(4_u64, 4, 6) {
            for number in 0..2_500 {
                trial.add(round * 100_000 + number).unwrap();
            }
            trial.mix(3_000, round * 110_000);
            trial.check(&trial.fs);
            trial.check_checkpoint(&device);
            trial.mix(500, round * 110_000);
        }
        // Shrink it again, so that leaves with buffered names are joined, and the directory changes to other forms.
        while trial.names.len() > 3 {
            for number in trial.names.keys().copied().step_by(2).collect::<Vec<_>>() {
                trial.fs.unlink(trial.dir, &text(number), None).unwrap();
                trial.names.remove(&number);
            }
            let few = trial.names.len() / 20;
            trial.mix(few, 700_000);
            trial.check_checkpoint(&device);
        }
        trial.fs.finish(None).unwrap();
        assert_clean(&device);
    }
}

/// A directory with so many names that the cache has room for few of its leaves.
#[test]
fn large_directories_keep_all_names() {
    require!(Tool("xfs_repair"));
    let device = Arc::new(USUAL.make());
    let mut trial = Trial::new(USUAL, device.clone(), SMALL_CACHE_BYTES * 2, 9);
    for number in 0..testkit::effort(120_000, 120_000, 300_000) {
        trial.add(number).unwrap();
        if number % 60_000 == 59_999 {
            trial.mix(5_000, number + 20_000);
            let beyond: Vec<_> = trial.names.range(number + 1..).map(|(n, _)| *n).collect();
            for number in beyond {
                trial.fs.unlink(trial.dir, &text(number), None).unwrap();
                trial.names.remove(&number);
            }
        }
    }
    trial.check(&trial.fs);
    trial.check_checkpoint(&device);
}

/// A lack of space shows when a name is added, never when buffered names are merged into the index.
#[test]
fn nothing_that_waits_needs_space() {
    require!(Tool("xfs_repair"));
    for (layout, seed) in [(TINY, 21), (SMALL, 22), (USUAL, 23)] {
        let layout = TargetLayout { size: 64 << 20, ..layout };
        let device = Arc::new(layout.make());
        let mut trial = Trial::new(layout, device.clone(), SMALL_CACHE_BYTES * 4, seed);
        let large = trial.fs.create(trial.fs.root(), b"large", &NEW).unwrap();
        let free = trial.fs.statfs().unwrap();
        let bytes = (free.blocks_free - 700) * u64::from(free.block_size);
        trial.fs.allocate(large, 0, bytes, vfs::AllocateMode::Unwritten).unwrap();
        let (mut number, mut refused) = (0, 0);
        while refused < 300 {
            number += 1;
            match trial.add(number) {
                Ok(()) => {}
                Err(Error::NoSpace) => refused += 1,
                Err(other) => panic!("{other}"),
            }
            assert!(number < 100_000, "there is room for ever");
        }
        assert!(trial.names.len() > 2_000, "{}", trial.names.len());
        trial.check(&trial.fs);
        trial.check_checkpoint(&device);
        trial.fs.unlink(trial.fs.root(), b"large", None).unwrap();
        trial.mix(2_000, number);
        trial.check_checkpoint(&device);
    }
}

/// Number of names in a directory on a device that can fail.
const FAULTY_NAMES: u64 = 12_000;

/// Returns a directory that does not fit into the cache, with buffered names, on a device that can fail.
fn faulty(seed: u64) -> (Trial, Arc<FaultyDevice>) {
    let memory: Arc<dyn BlockDevice> = Arc::new(USUAL.make());
    let device = Arc::new(FaultyDevice::new(memory));
    let mut trial = Trial::new(USUAL, device.clone(), 256 << 10, seed);
    (0..FAULTY_NAMES).for_each(|number| trial.add(number).unwrap());
    (trial, device)
}

/// A failed operation leaves no buffered name, and removes none.
#[test]
fn a_failed_read_leaves_no_name_waiting() {
    let (mut trial, device) = faulty(31);
    let mut failures = 0;
    for number in FAULTY_NAMES..FAULTY_NAMES + 400 {
        device.set(Access::Read, Fault::Nth(number % 3 + 1));
        let outcome = trial.add(number);
        failures += u32::from(matches!(outcome, Err(Error::Device(_))));
        let is_there = outcome.is_ok();
        device.set(Access::Read, Fault::Never);
        assert_eq!(trial.fs.lookup(trial.dir, &text(number)).is_ok(), is_there, "{number}");
        let other = trial.any(FAULTY_NAMES).unwrap();
        assert!(trial.fs.lookup(trial.dir, &text(other)).is_ok(), "{other}");
    }
    assert!(failures > 10, "{failures} of 400 failed");
    trial.check(&trial.fs);
}

/// A device failure while a checkpoint is closed stops the engine; buffered names are still found.
#[test]
fn nothing_is_lost_from_memory_when_the_device_fails() {
    for (access, nth) in
        [(Access::Read, 1), (Access::Read, 2), (Access::Read, 4), (Access::Write, 1)]
    {
        let (mut trial, device) = faulty(nth);
        trial.fs.sync().unwrap();
        (FAULTY_NAMES..FAULTY_NAMES + 8).for_each(|number| trial.add(number).unwrap());
        // Data blocks replace the leaves with buffered names in the cache.
        (0..3).for_each(|_| trial.check_list(&trial.fs));
        device.set(access, Fault::Nth(nth));
        let outcome = trial.fs.sync();
        assert_eq!(outcome.is_err(), device.failures(access) == 1, "{access:?} {nth}");
        assert!(outcome.is_err(), "{access:?} {nth} never failed");
        device.set(access, Fault::Never);
        assert_eq!(trial.fs.create(trial.fs.root(), b"x", &NEW).is_ok(), outcome.is_ok());
        // Blocks that could not be written cannot be read again.
        if access == Access::Read {
            trial.check(&trial.fs);
        }
    }
}

/// Readers find every name while checkpoints are closed.
#[test]
fn readers_find_names_on_their_way() {
    require!(Tool("xfs_repair"));
    let device = Arc::new(TINY.make());
    let mut trial = Trial::new(TINY, device.clone(), SMALL_CACHE_BYTES * 4, 5);
    (0..5_000).for_each(|number| trial.add(number).unwrap());
    let (fs, dir, files) = (&trial.fs, trial.dir, trial.files);
    let is_over = AtomicBool::new(false);
    let added = std::sync::atomic::AtomicU64::new(5_000);
    std::thread::scope(|scope| {
        for seed in 0..testkit::effort(1, 2, 50) {
            let (is_over, added) = (&is_over, &added);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed);
                while !is_over.load(Ordering::Acquire) {
                    let last = added.load(Ordering::Acquire);
                    let number = rng.u64(last - 300..last);
                    assert!(fs.lookup(dir, &text(number)).is_ok(), "{number} of {last}");
                    assert!(fs.lookup(dir, &text(last + 1_000_000)).is_err());
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                fs.sync().unwrap();
            }
        });
        for number in 5_000..9_000 {
            fs.link(files[0], dir, &text(number), None).unwrap();
            added.store(number + 1, Ordering::Release);
        }
        is_over.store(true, Ordering::Release);
    });
    trial.names.extend((5_000..9_000).map(|number| (number, files[0])));
    trial.check(&trial.fs);
    trial.check_checkpoint(&device);
}
