//! fs_mark as in 2025, for the cost of parent pointers, and the removal of its files.
//!
//! Observed behaviour of fs_mark 3.3 with these options: in every loop it starts a process for each directory. Before
//! every file the process tries to create the file's subdirectory, then opens the file with `O_RDWR`, `O_CREAT` and
//! `O_TRUNC` and closes it. A loop starts with the subdirectory whose number is the time in seconds modulo the number
//! of subdirectories, and moves to the next one after more than 180 seconds.

mod published;
mod rename;

use std::collections::BTreeSet;

use self::rename::Where;
use super::fill::{Lane, enter_all, files_of, fill};
use super::fingerprint::Fingerprint;
use super::names::count_in;
use super::removal::{NO_COLD_RUN, forgets, remove_directories};
use super::{Case, Context, Extra, Headline, Job, Published, TimedStep};
use crate::contestant::{Need, Session};
use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::target::Target;
use crate::with_target;

/// Seconds from the start of a loop, or of a subdirectory, to the next subdirectory: the first number above 180.
const SECONDS_PER_SUBDIRECTORY: u64 = 181;

/// Runs with at least this many files are long enough to be executed once.
const ONCE_FROM: u64 = 10_000_000;

/// Creates empty files as fs_mark does, and removes them.
#[derive(Clone, Debug)]
pub struct FsMark {
    /// Number of directories, each with its own thread (`-d`); at least 1.
    pub threads: u32,
    /// Number of files that each thread creates in each loop (`-n`).
    pub files: u32,
    /// Number of loops (`-L`).
    pub loops: u32,
    /// Number of subdirectories of each directory (`-D`); may be 0.
    pub subdirectories: u32,
    /// True if everything is created and removed a second time, with cold caches before the removal. If a session does
    /// not support that, that step is missing and the one before has the figure `cold runs`, which is 0.
    pub cold: bool,
    /// True if all files are renamed before they are removed, first within their directories and then into another.
    pub rename: bool,
}

impl FsMark {
    /// The run of 2025.
    pub const SEED: Self = Self {
        threads: 40,
        files: 100_000,
        loops: 8,
        subdirectories: 10_000,
        cold: false,
        rename: false,
    };

    /// Returns the number of files of the whole run.
    fn files_of_run(&self) -> u64 {
        let per_thread = u64::from(self.files) * u64::from(self.loops);
        per_thread.saturating_mul(self.threads.into())
    }

    /// Runs fs_mark, and checks the result. Returns the cost of each loop.
    fn make<T: Target>(&self, target: &T, context: &Context<'_>) -> Result<Vec<Cost>> {
        let lanes = (0..u64::from(self.threads)).map(|number| Lane::make(target, number, context));
        let mut lanes = lanes.collect::<Result<Vec<_>>>()?;
        let mut used = BTreeSet::new();
        let run = |_| self.make_loop(target, &mut lanes, &mut used, context);
        let costs = (0..self.loops).map(run).collect::<Result<_>>()?;
        lanes.iter().try_for_each(|lane| check(target, lane, &used, context))?;
        Ok(costs)
    }

    fn make_loop<T: Target>(
        &self,
        target: &T,
        lanes: &mut [Lane<T::Dir>],
        used: &mut BTreeSet<Vec<u8>>,
        context: &Context<'_>,
    ) -> Result<Cost> {
        let mut cost = Cost::default();
        // All clocks show the same time.
        let mut second = lanes.first().map_or(0, |lane| lane.names.second());
        let mut number = second.checked_rem(self.subdirectories.into());
        let mut left = u64::from(self.files);
        while left > 0 {
            second += SECONDS_PER_SUBDIRECTORY;
            let mut count = left;
            if let Some(number) = &mut number {
                let name = subdirectory_name(*number);
                cost += Cost::of(|| enter(target, lanes, &name))?.1;
                used.insert(name);
                *number = (*number + 1) % u64::from(self.subdirectories);
                count =
                    lanes.first().map_or(left, |lane| left.min(lane.names.count_before(second)));
            }
            cost += fill(lanes, count, context, |lane, name| {
                if let Some((subdirectory, _)) = &lane.subdirectory {
                    make_if_missing(target, &lane.top, subdirectory)?;
                }
                let file = target.create(lane.dir(), name, true)?;
                target.close(file)
            })?;
            left -= count;
        }
        cost += enter_all(target, lanes, context)?;
        Ok(cost)
    }

    fn remove<T: Target>(&self, target: &T, context: &Context<'_>) -> Result<Cost> {
        let directories = (self.threads.into(), self.threads);
        remove_directories(target, directories, self.files_of_run(), context)
    }

    fn step(&self, name: &'static str, cost: Cost) -> TimedStep {
        TimedStep { name, operations: self.files_of_run(), cost, extras: Vec::new() }
    }

    fn create_step(&self, loops: &[Cost]) -> TimedStep {
        let mut cost = Cost::default();
        loops.iter().for_each(|&of_loop| cost += of_loop);
        let files_of_loop = f64::from(self.threads) * f64::from(self.files);
        let mut rates: Vec<f64> =
            loops.iter().map(|cost| files_of_loop / cost.wall.as_secs_f64()).collect();
        rates.sort_by(f64::total_cmp);
        let extra =
            |name, at: usize| rates.get(at).map(|&value| Extra { name, unit: "files/s", value });
        let extras = [extra("slowest loop", 0), extra("median loop", rates.len() / 2)];
        TimedStep { extras: extras.into_iter().flatten().collect(), ..self.step("create", cost) }
    }
}

impl Job for FsMark {
    fn name(&self) -> &'static str {
        "fs-mark"
    }

    fn what(&self) -> String {
        let Self { threads, files, loops, subdirectories, .. } = self;
        let directories = match threads {
            1 => "one directory, and then rm -rf".to_owned(),
            _ => format!("{threads} directories, and then rm -rf with a thread for each of them"),
        };
        let renamed = if self.rename {
            " Before the removal every file gets another name of the same length, in the order of the \
             directory: first where it is, then in one directory for all files of a thread."
        } else {
            ""
        };
        let cold = if self.cold {
            " Everything is then created and removed again, with caches synced and dropped in \
             between."
        } else {
            ""
        };
        format!(
            "Does what fs_mark -k -S 0 -s 0 -D {subdirectories} -n {files} -L {loops} does with \
             {directories}: the run that Darrick Wong \
             measured parent pointers with in 2025. Before each file its subdirectory is made, which is \
             there already; the file is opened with O_CREAT and O_TRUNC and closed. The time that names \
             and subdirectories follow from is not the machine's: it starts at a fixed moment, and a \
             file takes each thread 72 microseconds, as in that run. Paths are relative to the \
             directory, names are made outside of what is timed, and nothing is written or made \
             durable.{renamed}{cold}"
        )
    }

    fn axis(&self) -> &'static str {
        "files"
    }

    fn unit(&self) -> &'static str {
        "files/s"
    }

    fn cases(&self) -> Vec<Case> {
        let files = self.files_of_run();
        let per_loop = u64::from(self.files) / count_in(SECONDS_PER_SUBDIRECTORY) + 2;
        let used = (per_loop * u64::from(self.loops)).min(self.subdirectories.into());
        let inodes = files.saturating_add((used + 1) * u64::from(self.threads));
        let need = Need { inodes, bytes: 0, threads: self.threads, existing: false };
        let times = if self.cold { 4 } else { 2 } + if self.rename { 2 } else { 0 };
        let operations = files.saturating_mul(times);
        let rounds_max = if files >= ONCE_FROM { 1 } else { u32::MAX };
        vec![Case { x: files, need, operations, rounds_max }]
    }

    fn run(
        &self,
        _: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        let loops = with_target!(session.target(), target => self.make(target, context))?;
        let mut steps = vec![self.create_step(&loops)];
        if self.rename {
            for (name, place) in [("rename", Where::Same), ("move", Where::Other)] {
                let files = self.files_of_run();
                let cost = with_target!(session.target(), target => {
                    rename::rename(target, self.threads, files, place, context)
                })?;
                steps.push(self.step(name, cost));
            }
        }
        let cost = with_target!(session.target(), target => self.remove(target, context))?;
        let mut removed = self.step("remove", cost);
        if !self.cold {
            steps.push(removed);
            return Ok(steps);
        }
        if !forgets(session)? {
            removed.extras.push(NO_COLD_RUN);
            steps.push(removed);
            context.advance(self.files_of_run() * 2)?;
            return Ok(steps);
        }
        steps.push(removed);
        with_target!(session.target(), target => self.make(target, context))?;
        session.drop_caches()?;
        let cost = with_target!(session.target(), target => self.remove(target, context))?;
        steps.push(self.step("remove, cold cache", cost));
        Ok(steps)
    }

    fn published(&self) -> Vec<Published> {
        published::tables()
    }

    fn headlines(&self) -> Vec<Headline> {
        published::headlines()
    }
}

fn subdirectory_name(number: u64) -> Vec<u8> {
    format!("{number:02x}").into_bytes()
}

/// Directs the files of all threads to a subdirectory of this name.
fn enter<T: Target>(target: &T, lanes: &mut [Lane<T::Dir>], name: &[u8]) -> Result<()> {
    for lane in lanes {
        make_if_missing(target, &lane.top, name)?;
        lane.subdirectory = Some((name.to_vec(), target.open_dir(&lane.top, name)?));
    }
    Ok(())
}

fn make_if_missing<T: Target>(target: &T, dir: &T::Dir, name: &[u8]) -> Result<()> {
    match target.make_dir(dir, name) {
        Err(Error::FileSystem { source: vfs::Error::Exists, .. }) => Ok(()),
        Err(Error::Host { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists => {
            Ok(())
        }
        result => result,
    }
}

/// Checks that a thread's directory has the subdirectories `used` and the expected files.
fn check<T: Target>(
    target: &T,
    lane: &Lane<T::Dir>,
    used: &BTreeSet<Vec<u8>>,
    context: &Context<'_>,
) -> Result<()> {
    if used.is_empty() {
        return lane.made.expect(&files_of(target, &lane.top, &[], context)?, &lane.name);
    }
    let mut found = BTreeSet::new();
    target.list(&lane.top, &mut |name, _| {
        found.insert(name.to_vec());
        Ok(())
    })?;
    if &found != used {
        let (place, expected, found) = (&lane.name, used.len(), found.len());
        let what = format!("{place}: {expected} subdirectories expected, {found} or others found");
        return Err(Error::Wrong(what));
    }
    let mut files = Fingerprint::default();
    for name in &found {
        let dir = target.open_dir(&lane.top, name)?;
        files.join(files_of(target, &dir, name, context)?);
    }
    lane.made.expect(&files, &lane.name)
}
