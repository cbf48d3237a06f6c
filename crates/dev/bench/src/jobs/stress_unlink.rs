//! stress-unlink: threads that sync and remove files.

use super::together::together;
use super::{Case, Context, Job, TimedStep};
use crate::contestant::{Need, Session};
use crate::error::{Error, Result};
use crate::target::Target;
use crate::with_target;

/// Size of each file in bytes.
const FILE_BYTES: usize = 16 << 10;

/// Number of files between two checks for cancellation.
const BATCH: u32 = 4;

/// Threads that each create, write, sync and remove files repeatedly, in separate directories. The counterpart of
/// [`StressOrphan`](super::StressOrphan).
#[derive(Clone, Debug)]
pub struct StressUnlink {
    /// Numbers of threads, one case for each. All threads do the same work.
    pub threads: Vec<u32>,
    /// Number of files that each thread creates and removes.
    pub files: u32,
}

impl Default for StressUnlink {
    /// 1, 2, 4 … 128 threads, 100 files for each.
    fn default() -> Self {
        Self { threads: (0..8).map(|log| 1 << log).collect(), files: 100 }
    }
}

impl StressUnlink {
    fn on<T: Target>(
        &self,
        target: &T,
        threads: u32,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        let top = target.top()?;
        let mut dirs = Vec::new();
        for thread in 0..threads {
            let name = format!("thread-{thread:03}");
            target.make_dir(&top, name.as_bytes())?;
            dirs.push(target.open_dir(&top, name.as_bytes())?);
        }
        target.sync()?;
        let contents = vec![b'u'; FILE_BYTES];
        let cost = together(threads, |thread| {
            self.come_and_go(target, &dirs[thread as usize], &contents, context)
        })?;
        for dir in &dirs {
            target.list(dir, &mut |name, _| {
                Err(Error::Wrong(format!("{} is still there", name.escape_ascii())))
            })?;
        }
        let operations = u64::from(threads) * u64::from(self.files);
        Ok(vec![TimedStep { name: "unlink", operations, cost, extras: Vec::new() }])
    }

    fn come_and_go<T: Target>(
        &self,
        target: &T,
        dir: &T::Dir,
        contents: &[u8],
        context: &Context<'_>,
    ) -> Result<()> {
        const NAME: &[u8] = b"file";
        for done in 0..self.files {
            if done > 0 && done % BATCH == 0 {
                context.advance(BATCH.into())?;
            }
            let file = target.create(dir, NAME, true)?;
            target.write(&file, 0, contents)?;
            target.sync_file(&file)?;
            target.close(file)?;
            target.unlink(dir, NAME)?;
        }
        let rest = self.files - self.files.saturating_sub(1) / BATCH * BATCH;
        context.advance(rest.into())
    }
}

impl Job for StressUnlink {
    fn name(&self) -> &'static str {
        "stress-unlink"
    }

    fn what(&self) -> String {
        let files = self.files;
        format!(
            "Each thread creates a file in its own directory, writes {} KiB, syncs, closes and \
             removes it, {files} times. By the author of stress-orphan, without published figures. \
             The duration of a sync depends on the device, so devices in memory and disks are not \
             comparable.",
            FILE_BYTES >> 10
        )
    }

    fn axis(&self) -> &'static str {
        "threads"
    }

    fn unit(&self) -> &'static str {
        "files/s"
    }

    fn cases(&self) -> Vec<Case> {
        let case = |&threads: &u32| {
            let count = u64::from(threads);
            let need = Need {
                inodes: 2 * count,
                bytes: count * FILE_BYTES as u64,
                threads,
                existing: false,
            };
            let operations = count * u64::from(self.files);
            Case { x: count, need, operations, rounds_max: 3 }
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
}
