//! Threads that create waiting files, while others read, sync, remove and rename.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use operations::deferred_create::DeferPolicy;
use vfs::{Error, FileSystem, FileType, Ino, NewInode, RenameMode};

use super::{NEW, OpenTrial, SOON, WaitingTrial, Watchdog, entries, later};

const MAKERS: u32 = 3;
/// Time limit of the test.
const LIMIT: Duration = Duration::from_secs(1800);

fn name(maker: u32, number: u32) -> Vec<u8> {
    format!("made by thread {maker}, number {number}").into_bytes()
}

fn moved(maker: u32, number: u32) -> Vec<u8> {
    [b"moved: ", &name(maker, number)[..]].concat()
}

/// Operation on a file after its creation.
#[derive(PartialEq, Eq)]
enum Fate {
    Stays,
    Removed,
    Renamed,
    Written,
}

fn fate(number: u32) -> Fate {
    match number % 64 {
        7 => Fate::Removed,
        23 => Fate::Renamed,
        41 => Fate::Written,
        _ => Fate::Stays,
    }
}

struct Stress<'s> {
    fs: &'s dyn FileSystem,
    dir: Ino,
    /// Number of existing files of each creator.
    made: [AtomicU32; MAKERS as usize],
    is_over: AtomicBool,
}

impl Stress<'_> {
    fn make(&self, maker: u32, files: u32) {
        let (fs, dir) = (self.fs, self.dir);
        for number in 0..files {
            let name = name(maker, number);
            // The time in seconds is the number of earlier files: the times of a directory never decrease.
            let new = NewInode { parent_time: later(number.into()), ..NEW };
            let ino = fs.create(dir, &name, &new).unwrap();
            assert_eq!(fs.lookup(dir, &name).unwrap(), ino);
            assert!(matches!(fs.create(dir, &name, &new), Err(Error::Exists)));
            match fate(number) {
                Fate::Removed => fs.unlink(dir, &name, None).unwrap(),
                Fate::Renamed => {
                    let to = moved(maker, number);
                    fs.rename((dir, &name), (dir, &to), RenameMode::NoReplace, None).unwrap();
                }
                Fate::Written => fs.write(ino, 0, &name, None).unwrap(),
                Fate::Stays => {}
            }
            self.made[maker as usize].store(number + 1, Ordering::Release);
        }
    }

    /// Checks that everything created before is visible, and nothing twice.
    fn read(&self, seed: u64) {
        let (fs, dir) = (self.fs, self.dir);
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0_u32.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let maker = random.u32(..MAKERS);
            let made = self.made[maker as usize].load(Ordering::Acquire);
            if made == 0 {
                continue;
            }
            // The last files may be applied at this moment.
            let number = if round % 2 == 0 { made - 1 } else { random.u32(..made) };
            self.look_at(maker, number);
            if round.is_multiple_of(500) {
                let all = entries(fs, dir);
                assert!(all.windows(2).all(|two| two[0].0 != two[1].0));
                let expected = (0..made).filter(|&number| fate(number) != Fate::Removed);
                let of_maker = format!("made by thread {maker},").into_bytes();
                let found = all.iter().filter(|(name, _)| {
                    name.starts_with(&of_maker)
                        || name.strip_prefix(b"moved: ").is_some_and(|n| n.starts_with(&of_maker))
                });
                assert!(found.count() >= expected.count());
            }
        }
    }

    fn look_at(&self, maker: u32, number: u32) {
        let (fs, dir) = (self.fs, self.dir);
        let looked = fs.lookup(dir, &name(maker, number));
        let ino = match fate(number) {
            Fate::Removed => return assert!(matches!(looked, Err(Error::NotFound))),
            Fate::Renamed => {
                assert!(matches!(looked, Err(Error::NotFound)));
                fs.lookup(dir, &moved(maker, number)).unwrap()
            }
            Fate::Stays | Fate::Written => looked.unwrap(),
        };
        let found = fs.attributes(ino).unwrap();
        assert_eq!((found.file_type, found.links), (FileType::Regular, 1));
        let size = if fate(number) == Fate::Written { name(maker, number).len() } else { 0 };
        assert_eq!(found.size, size as u64);
        fs.open(ino).unwrap();
        fs.close(ino).unwrap();
    }

    /// Checks that everything created before a sync is present after a crash that follows it.
    fn sync(&self, crash: &(dyn Fn() -> OpenTrial + Sync)) {
        for round in 0_u32.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let made = self.made.each_ref().map(|made| made.load(Ordering::Acquire));
            self.fs.fsync(self.dir).unwrap();
            if !round.is_multiple_of(16) {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            let crashed = crash();
            for (maker, made) in (0..).zip(made) {
                for number in (0..made).filter(|&number| fate(number) != Fate::Removed) {
                    let name = match fate(number) {
                        Fate::Renamed => moved(maker, number),
                        _ => name(maker, number),
                    };
                    let is_found = crashed.fs().lookup(self.dir, &name).is_ok();
                    assert!(is_found, "{number} of {maker}");
                }
            }
        }
    }
}

/// Threads create `files` waiting files each, while others read, sync, remove and rename.
///
/// # Panics
/// If something is lost, or unexpected.
pub fn threads(trial: &WaitingTrial<'_>, files: u32) {
    let policy = DeferPolicy { files_max: 300, parts: 8, ..SOON };
    run(trial, policy, files);
    // Files repeatedly start and stop waiting.
    run(trial, DeferPolicy { streak_per_block: 1, ..policy }, files);
}

fn run(trial: &WaitingTrial<'_>, policy: DeferPolicy, files: u32) {
    let _watchdog = Watchdog::new(LIMIT, format!("{}: threads that make files", trial.name));
    let opened = trial.empty(policy);
    let (fs, dir) = (opened.fs(), opened.dir);
    let (open, device) = (trial.open, &*opened.device);
    let crash = || {
        let device = std::sync::Arc::new(device.fork());
        let mounted = open(device.clone(), super::CACHE_BYTES, None).unwrap();
        OpenTrial { device, mounted, dir }
    };
    let stress = Stress { fs, dir, made: Default::default(), is_over: AtomicBool::new(false) };
    std::thread::scope(|scope| {
        let (stress, crash) = (&stress, &crash);
        let makers = (0..MAKERS).map(|maker| scope.spawn(move || stress.make(maker, files)));
        let makers: Vec<_> = makers.collect();
        for seed in 0..2 {
            scope.spawn(move || stress.read(seed));
        }
        scope.spawn(move || stress.sync(crash));
        // The others end even if one failed.
        let outcomes: Vec<_> = makers.into_iter().map(|maker| maker.join()).collect();
        stress.is_over.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(Result::is_ok));
    });
    assert_eq!(fs.attributes(dir).unwrap().file_type, FileType::Directory);
    let kept = (0..files).filter(|&number| fate(number) != Fate::Removed).count();
    assert_eq!(opened.entries().len(), kept * MAKERS as usize);
    trial.close(opened);
}
