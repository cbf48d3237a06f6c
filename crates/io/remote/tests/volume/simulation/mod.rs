//! Runs volumes on a simulated store, with operations and faults that a seed decides. All tasks of a run are in one
//! thread, and its clock advances only while they wait.
//!
//! `DISKWRIGHT_SEED=N` runs one seed.

mod contents;
mod store;

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use chrono::TimeDelta;
use disk::BlockDevice;
use diskwright_remote::volume::{
    NewVolume, Options, View, Volume, clone, collect, snapshot, survey,
};
use remote::place::runtime::{block_on, simulate, skew_clock};
use tokio::runtime::Builder;

use contents::{BLOCK_BYTES, BLOCKS, ExpectedContents, LEN, parts};
use store::SimulatedWorld;

const STEPS: u32 = 60;
const FAULTS: u32 = 6;

/// A run: the machines, and the contents that a reader may find.
struct Simulation {
    world: Arc<SimulatedWorld>,
    random: fastrand::Rng,
    expected: ExpectedContents,
    owner: Option<Volume>,
    machine: u32,
    /// Volumes of machines that lost them to the owner, and still run.
    fenced: Vec<Volume>,
    /// Snapshots with their contents.
    snapshots: Vec<(String, Vec<u64>)>,
    /// Snapshots of other machines, with the writes that they may contain.
    outside_snapshots: Vec<(String, ExpectedContents)>,
    clones: Vec<(String, Vec<u64>)>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let world = SimulatedWorld::new(seed);
        NewVolume::create(&world.at(0, "v"), LEN, &Options::default()).unwrap().finish().unwrap();
        world.allow_faults(FAULTS);
        Self {
            world,
            random: fastrand::Rng::with_seed(!seed),
            expected: ExpectedContents::new(),
            owner: None,
            machine: 0,
            fenced: Vec::new(),
            snapshots: Vec::new(),
            outside_snapshots: Vec::new(),
            clones: Vec::new(),
        }
    }

    fn options(&mut self) -> Options {
        // The default cache holds everything. Evictions depend on the time of the host.
        let options = Options::default().retries(4);
        let bulk = *self.random.choice(&[4096, 64 << 10, 256 << 10, 1 << 30]).unwrap();
        let table = *self.random.choice(&[32 << 10, 1 << 20, 32 << 20]).unwrap();
        options.bulk_bytes(bulk).table_bytes(table)
    }

    /// Opens the volume on a new machine, which fences the owner.
    fn open(&mut self) {
        self.machine += 1;
        let options = self.options();
        if self.random.u32(0..4) == 0 {
            skew_clock(Duration::from_secs(self.random.u64(0..400 * 86_400)));
        }
        self.fenced.extend(self.owner.take());
        if self.random.u32(0..3) == 0 {
            self.world.crash_after(self.machine, self.random.u32(1..60));
        }
        // Faults may prevent it.
        let Ok(volume) = Volume::open(&self.world.at(self.machine, "v"), &options) else { return };
        if let Some(found) = read(&volume) {
            self.expected.survived(&found);
            self.owner = Some(volume);
        }
    }

    /// Performs an operation of the owner, which fails only after faults. Then the machine is lost.
    fn with_owner(&mut self, work: impl FnOnce(&mut Self, &Volume) -> bool) {
        let Some(volume) = self.owner.take() else { return self.open() };
        if work(self, &volume) {
            self.owner = Some(volume);
        }
    }

    fn write(&mut self) {
        let count = 1 << self.random.u32(0..8);
        let first = self.random.u64(..BLOCKS - count);
        let is_zero = self.random.u32(0..6) == 0;
        self.with_owner(|this, volume| {
            let number = this.expected.write(first..first + count, is_zero);
            parts(first..first + count).all(|(at, blocks)| {
                if is_zero {
                    return volume.discard(at, (blocks.end - blocks.start) * BLOCK_BYTES).is_ok();
                }
                let data: Vec<_> =
                    blocks.flat_map(|block| contents::block(number, block)).collect();
                volume.write_at(at, &data).is_ok()
            })
        });
    }

    fn flush(&mut self) {
        self.with_owner(|this, volume| {
            let is_flushed = volume.flush().is_ok();
            if is_flushed {
                this.expected.synced();
            }
            is_flushed
        });
    }

    fn barrier(&mut self) {
        self.with_owner(|this, volume| {
            let is_done = volume.barrier().is_ok();
            if is_done {
                this.expected.barrier();
            }
            is_done
        });
    }

    /// A machine that lost the volume cannot make anything durable.
    fn write_fenced(&mut self) {
        let Some(volume) = self.fenced.pop() else { return };
        if self.owner.is_none() {
            // The volume may not have been lost: an open can fail before it fences anybody.
            return;
        }
        let written = volume.write_at(0, &[0xff; 2 * BLOCK_BYTES as usize]);
        assert!(written.and_then(|()| volume.flush()).is_err(), "a fenced machine wrote");
    }

    fn take_snapshot(&mut self) {
        let name = format!("s{:x}", self.random.u64(..));
        self.with_owner(|this, volume| {
            let is_taken = volume.snapshot(&name).is_ok();
            if is_taken {
                this.snapshots.push((name, this.expected.newest()));
            }
            is_taken
        });
    }

    /// Takes a snapshot from a new machine, which must contain all synced writes.
    fn take_outside_snapshot(&mut self) {
        let name = format!("o{:x}", self.random.u64(..));
        self.machine += 1;
        let take_over = self.random.bool();
        if take_over {
            self.fenced.extend(self.owner.take());
        }
        if snapshot(&self.world.at(self.machine, "v"), &name, take_over).is_ok() {
            self.outside_snapshots.push((name, self.expected.clone()));
        }
    }

    fn clone_snapshot(&mut self) {
        let Some((name, contents)) = self.random.choice(&self.snapshots).cloned() else { return };
        let to = format!("clone{:x}", self.random.u64(..));
        self.machine += 1;
        let at = |name| self.world.at(self.machine, name);
        if clone(&at("v"), Some(&name), &at(&to), false).is_ok() {
            self.clones.push((to, contents));
        }
    }

    fn collect(&mut self) {
        self.machine += 1;
        // Errors are faults, or a snapshot that another machine changed.
        let _ = collect(&self.world.at(self.machine, "v"), Duration::ZERO, false);
    }

    fn step(&mut self) {
        match self.random.u32(0..33) {
            0..12 => self.write(),
            32 => self.take_outside_snapshot(),
            12..17 => self.flush(),
            17..19 => self.barrier(),
            19..21 => self.open(),
            21 => self.world.crash_after(self.machine, 0),
            22..24 => self.write_fenced(),
            24 => self.take_snapshot(),
            25 => self.clone_snapshot(),
            26 => self.collect(),
            27 => self.with_owner(|_, volume| volume.collect(Duration::ZERO).is_ok()),
            28 => self.with_owner(|_, volume| volume.compact().is_ok()),
            29 => self.world.jump_clock(TimeDelta::days(self.random.i64(-400..400))),
            _ => self.with_owner(|this, volume| match read(volume) {
                Some(found) => {
                    assert_eq!(found, this.expected.newest(), "the owner reads its writes");
                    true
                }
                None => false,
            }),
        }
    }

    /// Checks everything without faults.
    fn finish(mut self) -> u64 {
        self.world.allow_faults(0);
        let trace = self.world.trace();
        drop(std::mem::take(&mut self.fenced));
        drop(self.owner.take());
        self.machine += 1;
        let at = self.world.at(self.machine, "v");
        for round in 0..3 {
            let volume = Volume::open(&at, &Options::default()).unwrap();
            self.expected.survived(&read(&volume).unwrap());
            volume.close().unwrap();
            let survey = survey(&at, None, true).unwrap();
            assert_eq!(survey.problems, [""; 0], "round {round}");
            for (name, contents) in &self.snapshots {
                let view = View::open(&at, Some(name), &Options::default()).unwrap();
                assert_eq!(read(&view).as_ref(), Some(contents), "snapshot {name}, {round}");
            }
            for (name, expected) in &self.outside_snapshots {
                let view = View::open(&at, Some(name), &Options::default()).unwrap();
                expected.clone().survived(&read(&view).unwrap());
            }
            for (name, contents) in &self.clones {
                let at = self.world.at(self.machine, name);
                let view = View::open(&at, None, &Options::default()).unwrap();
                assert_eq!(read(&view).as_ref(), Some(contents), "{name}, {round}");
            }
            collect(&at, Duration::ZERO, round == 1).unwrap();
        }
        trace
    }
}

/// Returns the number of the write in each block; `None` if a request failed.
fn read(device: &dyn BlockDevice) -> Option<Vec<u64>> {
    let mut data = vec![0; (BLOCKS * BLOCK_BYTES) as usize];
    for (at, blocks) in parts(0..BLOCKS) {
        let [start, end] = [blocks.start, blocks.end].map(|it| (it * BLOCK_BYTES) as usize);
        if let Err(error) = device.read_at(at, &mut data[start..end]) {
            assert_ne!(error.kind(), std::io::ErrorKind::InvalidData, "{error}");
            return None;
        }
    }
    Some(contents::numbers(&data))
}

/// Runs `work` with its own time and random numbers.
fn simulated<T>(seed: u64, work: impl FnOnce() -> T) -> T {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let mut random = fastrand::Rng::with_seed(seed.rotate_left(32));
    simulate(runtime, move || random.u64(..), work)
}

fn run(seed: u64) -> u64 {
    simulated(seed, || {
        let mut simulation = Simulation::new(seed);
        for _ in 0..STEPS {
            simulation.step();
        }
        simulation.finish()
    })
}

#[test]
fn no_synced_write_is_lost_under_any_seed() {
    if let Ok(seed) = std::env::var("DISKWRIGHT_SEED") {
        run(seed.parse().expect("a number"));
        return;
    }
    let seeds = testkit::effort(8, 24, 10_000);
    let next = AtomicU64::new(0);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            let result = std::panic::catch_unwind(|| run(seed));
            assert!(result.is_ok(), "seed {seed}: run it with DISKWRIGHT_SEED={seed}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..testkit::effort(1, 1, available_parallelism().map_or(1, NonZero::get)) {
            scope.spawn(work);
        }
    });
}

#[test]
fn a_seed_repeats_a_run() {
    for seed in [3, 17] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

/// The database rejects times before that of its last write.
#[test]
fn a_clock_that_was_wrong_by_400_days_excludes_nobody() {
    for is_closed in [true, false] {
        simulated(1, || {
            let world = SimulatedWorld::new(1);
            let (at, options) = (world.at(0, "v"), Options::default());
            NewVolume::create(&at, LEN, &options).unwrap().finish().unwrap();
            let mut fenced = None;
            for (number, days) in [(1, 0), (2, 400), (3, 0), (4, 200)] {
                skew_clock(Duration::from_secs(days * 86_400));
                let volume = Volume::open(&at, &options).unwrap();
                let mut found = [0];
                volume.read_at(0, &mut found).unwrap();
                assert_eq!(found[0], number - 1, "{days} days");
                volume.write_at(0, &[number]).unwrap();
                volume.flush().unwrap();
                if is_closed {
                    volume.close().unwrap();
                } else {
                    fenced = Some(volume);
                }
            }
            drop(fenced);
        });
    }
}

/// The database would otherwise remove them after some minutes.
#[test]
fn a_view_keeps_the_tables_that_were_replaced() {
    simulated(1, || {
        let world = SimulatedWorld::new(1);
        let (at, options) = (world.at(0, "v"), Options::default().table_bytes(32 << 10));
        NewVolume::create(&at, LEN, &options).unwrap().finish().unwrap();
        let volume = Volume::open(&at, &options).unwrap();
        let sleep = |seconds| {
            block_on(async { tokio::time::sleep(Duration::from_secs(seconds)).await });
        };
        let write = |number| {
            let data: Vec<_> = (0..32).flat_map(|block| contents::block(number, block)).collect();
            data.chunks(32 << 10).zip(0..).for_each(|(part, index)| {
                volume.write_at(index * (32 << 10), part).unwrap();
            });
            volume.flush().unwrap();
            sleep(60);
        };
        (1..=20).for_each(write);
        let view = View::open(&at, None, &Options::default()).unwrap();
        (21..=60).for_each(write);
        sleep(3600);
        assert_eq!(read(&view).unwrap()[..32], [20; 32]);
    });
}
