//! What a crash leaves behind: seeded runs on a recorded device, stopped at many moments.
//!
//! A run does random steps on a file system and on the reference model side by side, and keeps the
//! model's state after each of them. Then the machine is stopped in thought: at every flush, and at
//! moments between flushes where any part of what was written since the last one, down to single
//! sectors of 512 bytes, may or may not have reached the device. A sector arrives as it was when it
//! was written, with all earlier writes to it. Each image that this could leave is opened again,
//! which recovers it, and what it shows is compared with the states that are allowed.
//!
//! # What is allowed
//! Number the model's states: state 0 before the first step, state `k` after step `k`. A crash after
//! some event of the device has
//! - a *durable* state: the last one that a finished `sync` or `close` followed. A finished `fsync`
//!   makes durable the last state that changed its inode (attributes, names or contents);
//! - a *started* state: that of the last step begun before the event.
//!
//! There must be one `k`, durable ≤ `k` ≤ started, such that
//! 1. names, types, links, permissions, owners, times, sizes, targets, extended attributes and which
//!    granules are holes, unwritten or written are exactly those of state `k`: metadata is a prefix
//!    of the steps. The space of files counts as metadata;
//! 2. each 512-byte sector of each regular file is that of the same inode in one of the states `k` to
//!    started, as far as it lies below the size in state `k`. So what was written up to `k` is there;
//!    overwriting, zeroing and cutting off may have reached the device before their metadata, sector
//!    by sector; and no other file's bytes, nor older ones, ever show.
//!
//! Without steps that change contents, rule 2 leaves no freedom.
//!
//! A target may say that files which were made wait ([`Target::files_may_wait`]). Then files may be missing from state
//! `k`, each of which was made after the durable state and is in state `k` just as it was made; and directories may
//! have the times of another of the allowed states.
//!
//! Then recovery itself is stopped at a random moment and done again, which must show the same tree;
//! and judges from outside look at the image before and after recovery.

mod allowed;
mod careless;
mod judge;
mod point;
mod record;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use blockdev::{BlockDevice, MemoryDevice};
use parking_lot::Mutex;
use vfs::FileSystem;

use crate::operation::Mix;
use crate::tree::Tree;

pub(crate) use allowed::{State, check};
pub use careless::CarelessDevice;

/// What a device writes as a whole, in bytes.
const SECTOR_BYTES: u64 = 512;

/// A kind of file system that the explorer can crash.
pub trait Target: Sync {
    /// A device with a new, empty file system. Where a target has several, the seed chooses.
    ///
    /// # Errors
    /// Why it cannot be made.
    fn make(&self, seed: u64) -> Result<MemoryDevice, String>;

    /// Ranges of the device, in bytes, that the format takes for granted are written as a whole;
    /// everything else is torn at sectors.
    fn indivisible(&self) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// Whether files that were made, and had nothing else done to them, may be lost though later steps are there.
    fn files_may_wait(&self) -> bool {
        false
    }

    /// Opens a file system to change it; one that was not closed is recovered first.
    ///
    /// # Errors
    /// As the file system says.
    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn Mounted>>;
}

/// An open file system that can be closed.
pub trait Mounted {
    /// The file system.
    fn file_system(&self) -> &dyn FileSystem;

    /// Makes everything durable and leaves the image clean.
    ///
    /// # Errors
    /// As the file system says.
    fn close(self: Box<Self>) -> vfs::Result<()>;
}

/// An image that a crash left, and what recovery made of it.
pub struct Case<'c> {
    /// The image as the crash left it.
    pub crashed: &'c MemoryDevice,
    /// The same image after it was opened and closed.
    pub recovered: &'c MemoryDevice,
    /// What the recovered file system showed.
    pub tree: &'c Tree,
}

/// Somebody else's opinion about an image.
pub trait Judge: Sync {
    /// What the report calls it.
    fn name(&self) -> &str;

    /// One state in so many goes to this judge.
    fn one_in(&self) -> u64;

    /// Looks at a crash.
    ///
    /// # Errors
    /// What is wrong, in full.
    fn judge(&self, case: &Case<'_>) -> Result<(), String>;
}

/// What to explore.
pub struct Options {
    /// What the runs consist of.
    pub mixes: Vec<Mix>,
    /// Steps of a run.
    pub steps_per_run: usize,
    /// Most steps that are done and made durable before a run begins, so that the log has something in
    /// it; how many follows from the seed.
    pub warm_steps_max: usize,
    /// States examined of a run; all its flush boundaries are, even if they are more.
    pub states_per_run: usize,
    /// One state in so many has its recovery stopped and done again.
    pub recrash_one_in: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mixes: vec![Mix::METADATA, Mix::ALL],
            steps_per_run: 60,
            warm_steps_max: 0,
            states_per_run: 100,
            recrash_one_in: 4,
        }
    }
}

/// A state that is not as it must be, or a run that did not get that far.
pub struct Failure {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the state in that run; `None` if the run itself went wrong.
    pub state: Option<usize>,
    /// What is wrong.
    pub what: String,
    /// The image as the crash left it, or as the run did.
    pub image: Option<MemoryDevice>,
}

/// What an exploration found.
#[derive(Default)]
pub struct Report {
    /// Runs done.
    pub runs: u64,
    /// Crash states examined, each recovered and compared.
    pub states: u64,
    /// How many of these lie at a flush boundary.
    pub boundaries: u64,
    /// States whose recovery was stopped and done again.
    pub recrashed: u64,
    /// Verdicts of each judge.
    pub verdicts: Vec<(String, u64)>,
    /// What is wrong.
    pub failures: Vec<Failure>,
}

/// Explores crashes of one kind of file system.
pub struct Explorer<'e> {
    target: &'e dyn Target,
    judges: &'e [&'e dyn Judge],
    options: Options,
    examined: AtomicU64,
    report: Mutex<Report>,
}

impl<'e> Explorer<'e> {
    /// Prepares to explore.
    pub fn new(target: &'e dyn Target, judges: &'e [&'e dyn Judge], options: Options) -> Self {
        let verdicts = judges.iter().map(|judge| (judge.name().to_owned(), 0)).collect();
        let report = Mutex::new(Report { verdicts, ..Report::default() });
        Self { target, judges, options, examined: AtomicU64::new(0), report }
    }

    /// Examines runs with the seeds `seed`, `seed` + 1, … on several threads until there were
    /// `states` states. After each state, `progress` gets the number of states and of failures so
    /// far; it may break off.
    pub fn explore(
        self,
        seed: u64,
        states: u64,
        threads: usize,
        progress: &(dyn Fn(u64, usize) -> ControlFlow<()> + Sync),
    ) -> Report {
        let next_seed = AtomicU64::new(seed);
        let worker = || {
            while self.examined.load(Ordering::Relaxed) < states {
                let seed = next_seed.fetch_add(1, Ordering::Relaxed);
                let mut after_each = || {
                    let count = self.examined.load(Ordering::Relaxed);
                    let failures = self.report.lock().failures.len();
                    let stop = progress(count, failures).is_break() || count >= states;
                    if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                if self.run(seed, None, &mut after_each).is_break() {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(worker);
            }
        });
        self.report.into_inner()
    }

    /// Examines one state of one run again.
    pub fn reproduce(self, seed: u64, state: usize) -> Report {
        let _ = self.run(seed, Some(state), &mut || ControlFlow::Continue(()));
        self.report.into_inner()
    }

    fn run(
        &self,
        seed: u64,
        only: Option<usize>,
        after_each: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mix = self.options.mixes[(seed % self.options.mixes.len() as u64) as usize];
        let recorded = judge::guarded(|| record::run(self.target, seed, mix, &self.options));
        self.report.lock().runs += 1;
        let run = match recorded {
            Ok(run) => run,
            Err(what) => {
                let failure = Failure { seed, state: None, what, image: None };
                self.report.lock().failures.push(failure);
                self.examined.fetch_add(1, Ordering::Relaxed);
                return after_each();
            }
        };
        let points = point::choose(&run, seed, self.options.states_per_run);
        let mut image = point::ImageBuilder::new(&run);
        for (number, point) in points.iter().enumerate() {
            let crashed = image.build(point);
            if only.is_none_or(|only| only == number) {
                self.examine(&run, point, crashed, (seed, number));
                after_each()?;
            }
        }
        ControlFlow::Continue(())
    }

    fn examine(
        &self,
        run: &record::Run,
        point: &point::Point,
        crashed: MemoryDevice,
        (seed, number): (u64, usize),
    ) {
        let count = self.examined.fetch_add(1, Ordering::Relaxed);
        let recrash = count.is_multiple_of(self.options.recrash_one_in);
        let judges: Vec<&dyn Judge> = self
            .judges
            .iter()
            .copied()
            .filter(|judge| count.is_multiple_of(judge.one_in()))
            .collect();
        let verdict = judge::guarded(|| {
            let allowed = run.allowed(point.end);
            let recovered = judge::recover(self.target, &crashed, allowed)?;
            if recrash {
                judge::recrash(self.target, &crashed, &recovered.tree, seed ^ number as u64)?;
            }
            let case = recovered.case(&crashed);
            judges.iter().try_for_each(|judge| {
                judge.judge(&case).map_err(|what| format!("{}: {what}", judge.name()))
            })
        });
        let mut report = self.report.lock();
        report.states += 1;
        report.boundaries += u64::from(point.is_boundary());
        report.recrashed += u64::from(recrash);
        for judge in judges {
            let verdict = report.verdicts.iter_mut().find(|(name, _)| name == judge.name());
            if let Some((_, count)) = verdict {
                *count += 1;
            }
        }
        if let Err(what) = verdict {
            let what = format!("{what}\n{}", point::describe(run, point));
            let failure = Failure { seed, state: Some(number), what, image: Some(crashed) };
            report.failures.push(failure);
        }
    }
}
