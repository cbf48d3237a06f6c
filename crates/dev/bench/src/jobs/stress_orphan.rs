//! stress-orphan: threads that truncate files byte by byte.
//!
//! Each truncation makes its inode a temporary orphan, in file systems that record that, so the threads contend for the
//! record of orphans and for nothing else.

mod published;

use super::together::together;
use super::{Case, Context, Extra, Headline, Job, Published, TimedStep};
use crate::contestant::{Need, Session};
use crate::cost::Cost;
use crate::error::{Error, Result};
use crate::target::Target;
use crate::with_target;

/// Number of truncations between two checks for cancellation.
const BATCH: u32 = 1024;

/// Assumed block size for the space of files, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// Cases with more truncations than this run fewer times.
const LARGE: u64 = 2_000_000;

/// Threads that truncate files byte by byte, each in a separate directory.
#[derive(Clone, Debug)]
pub struct StressOrphan {
    /// Numbers of threads, one case for each. All threads do the same work.
    pub threads: Vec<u32>,
    /// Size of a file, and so the number of truncations until it is empty.
    pub file_bytes: u32,
    /// Number of files that each thread truncates, one after the other.
    pub rounds: u32,
}

impl Default for StressOrphan {
    /// 1, 2, 4 … 128 threads, 16 files of 4096 bytes for each.
    fn default() -> Self {
        Self { threads: (0..8).map(|log| 1 << log).collect(), file_bytes: 4096, rounds: 16 }
    }
}

impl StressOrphan {
    fn truncates_per_thread(&self) -> u64 {
        u64::from(self.rounds) * u64::from(self.file_bytes)
    }

    fn on<T: Target>(
        &self,
        target: &T,
        threads: u32,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        let dirs = self.prepare(target, threads, context)?;
        let cost = together(threads, |thread| {
            let dir = &dirs[thread as usize];
            (0..self.rounds).try_for_each(|round| self.empty(target, dir, round, context))
        })?;
        for dir in &dirs {
            self.check(target, dir)?;
        }
        Ok(vec![self.step(threads, cost)])
    }

    /// Writes the files of all threads and syncs them, so that their blocks are allocated.
    fn prepare<T: Target>(
        &self,
        target: &T,
        threads: u32,
        context: &Context<'_>,
    ) -> Result<Vec<T::Dir>> {
        let top = target.top()?;
        let contents = vec![b'o'; self.file_bytes as usize];
        let mut dirs = Vec::new();
        for thread in 0..threads {
            let name = format!("thread-{thread:03}");
            target.make_dir(&top, name.as_bytes())?;
            let dir = target.open_dir(&top, name.as_bytes())?;
            for round in 0..self.rounds {
                let file = target.create(&dir, &name_of(round), false)?;
                target.write(&file, 0, &contents)?;
                target.close(file)?;
            }
            dirs.push(dir);
            context.advance(0)?;
        }
        target.sync()?;
        Ok(dirs)
    }

    /// Truncates a file byte by byte.
    fn empty<T: Target>(
        &self,
        target: &T,
        dir: &T::Dir,
        round: u32,
        context: &Context<'_>,
    ) -> Result<()> {
        let file = target.open(dir, &name_of(round))?;
        let mut size = self.file_bytes;
        while size > 0 {
            let count = size.min(BATCH);
            for _ in 0..count {
                size -= 1;
                target.truncate(&file, size.into())?;
            }
            context.advance(count.into())?;
        }
        target.close(file)
    }

    /// Checks that every file of a thread exists and is empty.
    fn check<T: Target>(&self, target: &T, dir: &T::Dir) -> Result<()> {
        for round in 0..self.rounds {
            let name = name_of(round);
            let (_, size) = target.stat(dir, &name)?;
            if size != 0 {
                let name = name.escape_ascii();
                return Err(Error::Wrong(format!("{name} has {size} bytes, expected none")));
            }
        }
        Ok(())
    }

    fn step(&self, threads: u32, cost: Cost) -> TimedStep {
        let each = self.truncates_per_thread();
        let microseconds = cost.wall.as_secs_f64() * 1e6 / each.max(1) as f64;
        let extras = vec![Extra {
            name: "a truncate, as its thread sees it",
            unit: "µs",
            value: microseconds,
        }];
        TimedStep { name: "truncate", operations: u64::from(threads) * each, cost, extras }
    }
}

fn name_of(round: u32) -> Vec<u8> {
    format!("file-{round:04}").into_bytes()
}

impl Job for StressOrphan {
    fn name(&self) -> &'static str {
        "stress-orphan"
    }

    fn what(&self) -> String {
        let Self { file_bytes, rounds, .. } = self;
        format!(
            "Each thread truncates {rounds} files of {file_bytes} bytes byte by byte, one after the other, \
             in a directory of its own. The program of the orphan file's author was never published; he \
             described it as \"truncating files byte-by-byte from N processes in parallel\", and size and \
             number of the files are our choice. They are written and made durable before the clock \
             starts: what is timed is an open, {file_bytes} truncates and a close for each file. Every \
             thread does the same work, so times can be compared with those of the thread, in proportion. \
             Threads start together; here they are threads of one process. Nothing is synced while the \
             clock runs."
        )
    }

    fn axis(&self) -> &'static str {
        "threads"
    }

    fn unit(&self) -> &'static str {
        "truncates/s"
    }

    fn cases(&self) -> Vec<Case> {
        let blocks = u64::from(self.file_bytes).div_ceil(BLOCK_BYTES);
        let case = |&threads: &u32| {
            let files = u64::from(threads) * u64::from(self.rounds);
            let operations = u64::from(threads) * self.truncates_per_thread();
            let need = Need {
                inodes: files + u64::from(threads),
                bytes: files * blocks * BLOCK_BYTES,
                threads,
                existing: false,
            };
            let rounds_max = if operations < LARGE { 5 } else { 3 };
            Case { x: threads.into(), need, operations, rounds_max }
        };
        self.threads.iter().map(case).collect()
    }

    fn run(
        &self,
        case: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        with_target!(session.target(), target => self.on(target, case.need.threads, context))
    }

    fn published(&self) -> Vec<Published> {
        published::tables()
    }

    fn headlines(&self) -> Vec<Headline> {
        published::headlines()
    }
}
