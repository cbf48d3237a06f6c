//! Crash exploration: seeded runs on a recorded device, interrupted at many points.
//!
//! A run executes random steps on a file system and on the reference model in parallel, and keeps the model's state
//! after each step. Crashes are then simulated: at every flush, and at points between flushes where any subset of the
//! writes since the last flush, down to single sectors of 512 bytes, may have reached the device. A sector arrives with
//! its contents at the time of the write, including all earlier writes to it. Each resulting image is opened again,
//! which recovers it, and the result is compared with the allowed states.
//!
//! # Allowed states
//! Number the model's states: state 0 before the first step, state `k` after step `k`. A crash after some event of the
//! device has
//! - a *durable* state: the last one followed by a completed `sync` or `close`. A completed `fsync` makes the last
//!   state durable that changed its inode (attributes, names or contents);
//! - a *started* state: that of the last step begun before the event.
//!
//! There must be a `k`, durable ≤ `k` ≤ started, such that
//! 1. names, types, links, permissions, owners, times, sizes, targets, extended attributes, and the hole, unwritten or
//!    written state of granules are exactly those of state `k`: metadata is a prefix of the steps. The space of files
//!    counts as metadata;
//! 2. each 512-byte sector of each regular file, below the size in state `k`, is that of the same inode in one of the
//!    states from `k` to started. So everything written up to `k` is present. Overwriting, zeroing and truncation may
//!    have reached the device before their metadata, sector by sector. Bytes of other files, or older bytes, never
//!    appear.
//!
//! Without steps that change contents, rule 2 leaves no freedom.
//!
//! A target may declare that new files wait ([`CrashTarget::files_may_wait`]). Then files may be missing from state `k` if
//! each was created after the durable state and is unchanged in state `k`, and directories may have the times of
//! another allowed state.
//!
//! In addition, recovery itself is interrupted at a random point and repeated, which must produce the same tree, and
//! external checkers examine the image before and after recovery.

mod allowed;
mod careless;
mod judge;
mod point;
mod record;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{BlockDevice, MemoryDevice};
use parking_lot::Mutex;
use vfs::FileSystem;

use crate::fs_tree::FsTree;
use crate::operation::Mix;

pub(crate) use allowed::{ModelSnapshot, check};
pub use careless::CarelessDevice;

/// Size of a sector, which devices write atomically.
const SECTOR_BYTES: u64 = 512;

/// A kind of file system to be explored.
pub trait CrashTarget: Sync {
    /// Returns a device with a new, empty file system. If a target has several, the seed selects one.
    ///
    /// # Errors
    /// The reason why it cannot be created.
    fn make(&self, seed: u64) -> Result<MemoryDevice, String>;

    /// Returns the byte ranges of the device that the format assumes to be written atomically; everything else is torn
    /// at sectors.
    fn indivisible(&self) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// Returns the mix without operations that this file system refuses.
    fn adjusted(&self, mix: Mix) -> Mix {
        mix
    }

    /// Returns whether new files without further changes may be lost although later steps are present.
    fn files_may_wait(&self) -> bool {
        false
    }

    /// Opens a file system for writing; recovers it if it was not closed.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    fn open(&self, device: Arc<dyn BlockDevice>) -> vfs::Result<Box<dyn OpenFileSystem>>;
}

/// An open file system that can be closed.
pub trait OpenFileSystem {
    /// Returns the file system.
    fn file_system(&self) -> &dyn FileSystem;

    /// Makes everything durable and leaves the image clean.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    fn close(self: Box<Self>) -> vfs::Result<()>;
}

/// An image after a crash, and the result of its recovery.
pub struct CrashCase<'c> {
    /// The image after the crash.
    pub crashed: &'c MemoryDevice,
    /// The same image after it was opened and closed.
    pub recovered: &'c MemoryDevice,
    /// The tree of the recovered file system.
    pub tree: &'c FsTree,
}

/// An independent checker of an image.
pub trait Judge: Sync {
    /// Returns its name in the report.
    fn name(&self) -> &str;

    /// Returns `n`, to check every `n`-th state.
    fn one_in(&self) -> u64;

    /// Checks a crash.
    ///
    /// # Errors
    /// A complete description of the problem.
    fn judge(&self, case: &CrashCase<'_>) -> Result<(), String>;
}

/// Options of an exploration.
pub struct Options {
    /// Mixes of steps of the runs.
    pub mixes: Vec<Mix>,
    /// Number of steps of a run.
    pub steps_per_run: usize,
    /// Maximum number of steps that are executed and synced before a run begins, so that the log is not empty. The
    /// number depends on the seed.
    pub warm_steps_max: usize,
    /// Number of states to examine of a run. All its flush boundaries are examined, even if they are more.
    pub states_per_run: usize,
    /// Recovery is interrupted and repeated for every `n`-th state.
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

/// An invalid state, or a run that failed.
pub struct InvalidState {
    /// Seed of the run.
    pub seed: u64,
    /// Number of the state in that run; `None` if the run itself failed.
    pub state: Option<usize>,
    /// Description of the problem.
    pub what: String,
    /// The image after the crash, or after the run.
    pub image: Option<MemoryDevice>,
}

/// Result of an exploration.
#[derive(Default)]
pub struct Exploration {
    /// Number of runs.
    pub runs: u64,
    /// Number of crash states examined, each recovered and compared.
    pub states: u64,
    /// Number of states at a flush boundary.
    pub boundaries: u64,
    /// Number of states whose recovery was interrupted and repeated.
    pub recrashed: u64,
    /// Number of verdicts of each judge.
    pub verdicts: Vec<(String, u64)>,
    /// Failures.
    pub failures: Vec<InvalidState>,
}

/// Explores crashes of one kind of file system.
pub struct Explorer<'e> {
    target: &'e dyn CrashTarget,
    judges: &'e [&'e dyn Judge],
    options: Options,
    examined: AtomicU64,
    report: Mutex<Exploration>,
}

impl<'e> Explorer<'e> {
    /// Prepares to explore.
    pub fn new(target: &'e dyn CrashTarget, judges: &'e [&'e dyn Judge], options: Options) -> Self {
        let verdicts = judges.iter().map(|judge| (judge.name().to_owned(), 0)).collect();
        let report = Mutex::new(Exploration { verdicts, ..Exploration::default() });
        Self { target, judges, options, examined: AtomicU64::new(0), report }
    }

    /// Examines runs with the seeds `seed`, `seed` + 1, … on several threads until `states` states have been examined.
    /// After each state, calls `progress` with the number of states and of failures so far; it may cancel the
    /// exploration.
    pub fn explore(
        self,
        seed: u64,
        states: u64,
        threads: usize,
        progress: &(dyn Fn(u64, usize) -> ControlFlow<()> + Sync),
    ) -> Exploration {
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
    pub fn reproduce(self, seed: u64, state: usize) -> Exploration {
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
        let mix = self.target.adjusted(mix);
        let recorded = judge::guarded(|| record::run(self.target, seed, mix, &self.options));
        self.report.lock().runs += 1;
        let run = match recorded {
            Ok(run) => run,
            Err(what) => {
                let failure = InvalidState { seed, state: None, what, image: None };
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
        run: &record::RecordedRun,
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
            let failure = InvalidState { seed, state: Some(number), what, image: Some(crashed) };
            report.failures.push(failure);
        }
    }
}
