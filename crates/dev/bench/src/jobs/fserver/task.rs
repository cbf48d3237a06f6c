//! Data shared by tasks, its preparation, and the execution of a task.

use super::BLOCK_BYTES;
use super::mix::{self, JobKind};
use crate::error::{Error, Result};
use crate::jobs::Context;
use crate::target::Target;

/// Number of files in the directory that `dir_rtns_1` reads.
pub(super) const SYSTEM_FILES: u32 = 256;
/// Number of files for `disk_src`.
pub(super) const SOURCES: u32 = 345;

/// The source of `disk_cp`, in the top directory.
pub(super) const POOL: &[u8] = b"pool";
const SYSTEM: &[u8] = b"system";
const SRC: &[u8] = b"src";

/// Write size of the preparation, which is not timed.
const CHUNK_BYTES: u64 = 64 << 10;

/// Returns the number of files and directories for a number of tasks, including those that jobs create.
pub(super) fn inodes(tasks: u32) -> u64 {
    let each = 2 + u64::from(SOURCES) + 2;
    2 + u64::from(SYSTEM_FILES) + u64::from(tasks) * each
}

/// Data used by all tasks.
pub(super) struct TaskContext<'a, T: Target> {
    pub(super) target: &'a T,
    pub(super) context: &'a Context<'a>,
    pub(super) top: T::Dir,
    /// The directory that `dir_rtns_1` reads.
    pub(super) system: T::Dir,
    /// Number of blocks of each file.
    pub(super) blocks: u64,
    /// Names of the files of `disk_src`.
    pub(super) sources: Vec<Vec<u8>>,
}

impl<'a, T: Target> TaskContext<'a, T> {
    /// Creates the shared files.
    pub(super) fn prepare(target: &'a T, blocks: u64, context: &'a Context<'a>) -> Result<Self> {
        let top = target.top()?;
        target.make_dir(&top, SYSTEM)?;
        let system = target.open_dir(&top, SYSTEM)?;
        for number in 0..SYSTEM_FILES {
            target.make_file(&system, format!("program-{number:03}").as_bytes())?;
        }
        let sources = (0..SOURCES).map(|number| format!("source-{number:03}.c").into_bytes());
        let shared = Self { target, context, top, system, blocks, sources: sources.collect() };
        shared.prepare_pool()?;
        Ok(shared)
    }

    fn prepare_pool(&self) -> Result<()> {
        let pool = self.target.create(&self.top, POOL, false)?;
        let chunk = pattern(self.context.seed, CHUNK_BYTES);
        let bytes = self.blocks * BLOCK_BYTES;
        for offset in (0..bytes).step_by(CHUNK_BYTES as usize) {
            let count = (bytes - offset).min(CHUNK_BYTES);
            self.target.write(&pool, offset, &chunk[..count as usize])?;
        }
        self.target.close(pool)
    }

    /// Creates the files of one task.
    pub(super) fn prepare_task(&self, task: u32) -> Result<()> {
        self.context.advance(0)?;
        let name = name_of(task);
        self.target.make_dir(&self.top, &name)?;
        let dir = self.target.open_dir(&self.top, &name)?;
        self.target.make_dir(&dir, SRC)?;
        let src = self.target.open_dir(&dir, SRC)?;
        self.sources.iter().try_for_each(|name| self.target.make_file(&src, name))
    }

    /// Checks that everything is as before the tasks ran.
    pub(super) fn check(&self, tasks: u32) -> Result<()> {
        let size = self.target.stat(&self.top, POOL)?.1;
        if size != self.blocks * BLOCK_BYTES {
            return Err(Error::Wrong(format!("the source of the copies now has {size} bytes")));
        }
        for task in 0..tasks {
            let dir = self.target.open_dir(&self.top, &name_of(task))?;
            let src = self.target.open_dir(&dir, SRC)?;
            let found = (self.count(&dir)?, self.count(&src)?);
            if found != (1, SOURCES) {
                return Err(Error::Wrong(format!(
                    "task {task} leaves {} and {} entries instead of 1 and {SOURCES}",
                    found.0, found.1
                )));
            }
        }
        Ok(())
    }

    /// Returns the number of entries in a directory.
    pub(super) fn count(&self, dir: &T::Dir) -> Result<u32> {
        let mut count = 0;
        self.target.list(dir, &mut |_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }
}

/// Returns pseudo-random bytes for a seed.
fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    fastrand::Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn name_of(task: u32) -> Vec<u8> {
    format!("task-{task:04}").into_bytes()
}

/// A task during its jobs.
pub(super) struct Task<'a, T: Target> {
    pub(super) shared: &'a TaskContext<'a, T>,
    pub(super) target: &'a T,
    pub(super) dir: T::Dir,
    pub(super) src: T::Dir,
    pub(super) random: fastrand::Rng,
    /// One block, for all reads and writes.
    pub(super) buffer: Vec<u8>,
}

impl<'a, T: Target> Task<'a, T> {
    pub(super) fn new(shared: &'a TaskContext<'a, T>, number: u32) -> Result<Self> {
        let target = shared.target;
        let dir = target.open_dir(&shared.top, &name_of(number))?;
        let src = target.open_dir(&dir, SRC)?;
        // Similar seeds must not give neighbouring tasks the same jobs.
        let seed = fastrand::Rng::with_seed(shared.context.seed).u64(..) ^ u64::from(number);
        let random = fastrand::Rng::with_seed(seed);
        let buffer = pattern(shared.context.seed, BLOCK_BYTES);
        Ok(Self { shared, target, dir, src, random, buffer })
    }

    /// Executes all jobs of the task.
    pub(super) fn run(mut self, jobs: u32) -> Result<()> {
        for kind in mix::draw(jobs, &mut self.random) {
            self.one(kind)?;
            self.shared.context.advance(1)?;
        }
        Ok(())
    }

    fn one(&mut self, kind: JobKind) -> Result<()> {
        match kind {
            JobKind::DiskCp => self.disk_cp(),
            JobKind::DiskRd => self.disk_rd(),
            JobKind::DiskRr => self.disk_rr(),
            JobKind::DiskRw => self.disk_rw(),
            JobKind::DiskSrc => self.disk_src(),
            JobKind::DiskWrt => self.disk_wrt(),
            JobKind::CreatClo => self.creat_clo(),
            JobKind::DirRtns1 => self.dir_rtns_1(),
            JobKind::LinkTest => self.link_test(),
        }
    }
}
