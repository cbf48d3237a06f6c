//! fserver: the file-system jobs of reaim's `new_fserver` mix.
//!
//! # What was kept of the mix
//! `new_fserver` has 31 kinds of jobs with 580 hits in all. Nine of them, with 240 hits, work on a file
//! system; the others are arithmetic, memory, sorting, signals and sockets on the loopback, and are
//! left out. Kept, with their weights:
//!
//! | weight | job | what it does |
//! |---|---|---|
//! | 30 | `disk_cp` | copies the pool's file into a new one, which is removed before it is closed |
//! | 30 | `disk_rd` | writes a file, reads it from start to end, removes it |
//! | 30 | `disk_rr` | writes a file, reads as many blocks at random places, removes it |
//! | 30 | `disk_rw` | writes a file, writes as many blocks at random places, removes it before it is closed |
//! | 30 | `disk_src` | 57 times `stat`, 43 times make, close and remove a file, among 345 others |
//! | 30 | `disk_wrt` | writes a file, which is removed before it is closed |
//! | 20 | `creat_clo` | makes (or empties) and closes the same file 1000 times, removes it |
//! | 20 | `dir_rtns_1` | reads a directory, and reads it again from its start |
//! | 20 | `link_test` | gives a file 7 more names, then 9 times removes each and gives it again |
//!
//! Each task does a hundred jobs, drawn without replacement: the weights are scaled to that number and
//! each is rounded, halves up, which makes 13 jobs of each kind of weight 30 and 8 of weight 20, 102 in
//! all. Blocks have 1 KiB; a file has `FILESIZE` + `POOLSIZE` / tasks bytes. As in the thread,
//! nothing is synced.
//!
//! # What was chosen
//! - Tasks are threads of one process, not processes.
//! - `FILESIZE` is 1 MiB and `POOLSIZE` 32 MiB, which is usual; the thread does not tell its own.
//! - Each task works in a directory of its own, so no two tasks use the same name. The source of
//!   `disk_cp` and the directory that is read are everybody's, as they are in reaim.
//! - The 345 entries of `disk_src` are files in one directory per task; which of them are looked at, and
//!   in which order that and the making of files alternate, is random.
//! - `dir_rtns_1` reads a directory of the machine in reaim; here one of 256 files, made beforehand on
//!   the file system that is measured.
//! - `link_test` ends with removing all eight names.
//! - The result is jobs per second, and per minute as reaim has it. A job here is not worth a job of
//!   the whole mix, which has many that take next to no time.

mod disk;
mod mix;
mod names;
mod task;

use super::together::together;
use super::{Case, Context, Extra, Job, Published, TimedStep};
use crate::contestant::{Need, Session};
use crate::cost::Cost;
use crate::error::Result;
use crate::target::Target;
use crate::with_target;
use task::{Task, TaskContext};

/// Size of all reads and writes, in bytes.
const BLOCK_BYTES: u64 = 1 << 10;

/// The file-system jobs of reaim's `new_fserver` mix, done by many tasks at once.
#[derive(Clone, Debug)]
pub struct Fserver {
    /// Numbers of tasks at once, a case for each. All tasks do the same number of jobs of each kind.
    pub tasks: Vec<u32>,
    /// Jobs of each task that the mix is scaled to; each kind is rounded, so that there may be a few
    /// more or fewer.
    pub jobs_per_task: u32,
    /// Bytes that every file has.
    pub file_bytes: u64,
    /// Bytes that the files of all tasks share in addition to that.
    pub pool_bytes: u64,
}

impl Default for Fserver {
    /// 1, 25, 49 … 193 tasks, 100 jobs for each, 1 MiB and 32 MiB.
    fn default() -> Self {
        Self {
            tasks: (1..=193).step_by(24).collect(),
            jobs_per_task: 100,
            file_bytes: 1 << 20,
            pool_bytes: 32 << 20,
        }
    }
}

impl Fserver {
    /// Blocks of each file.
    fn blocks(&self, tasks: u32) -> u64 {
        (self.file_bytes + self.pool_bytes / u64::from(tasks.max(1))) / BLOCK_BYTES
    }

    fn jobs(&self, tasks: u32) -> u64 {
        let each = mix::counts(self.jobs_per_task);
        u64::from(tasks) * each.iter().map(|&(_, count)| u64::from(count)).sum::<u64>()
    }

    fn on<T: Target>(
        &self,
        target: &T,
        tasks: u32,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        let shared = TaskContext::prepare(target, self.blocks(tasks), context)?;
        for task in 0..tasks {
            shared.prepare_task(task)?;
        }
        target.sync()?;
        let work = |task| Task::new(&shared, task)?.run(self.jobs_per_task);
        let cost = together(tasks, work)?;
        shared.check(tasks)?;
        Ok(vec![self.step(tasks, cost)])
    }

    fn step(&self, tasks: u32, cost: Cost) -> TimedStep {
        let operations = self.jobs(tasks);
        let minutes = cost.wall.as_secs_f64().max(1e-9) / 60.0;
        let value = operations as f64 / minutes;
        let extras = vec![Extra { name: "as reaim has it", unit: "jobs/min", value }];
        TimedStep { name: "jobs", operations, cost, extras }
    }
}

impl Job for Fserver {
    fn name(&self) -> &'static str {
        "fserver"
    }

    fn what(&self) -> String {
        let kinds: Vec<_> = mix::counts(self.jobs_per_task)
            .iter()
            .map(|(kind, count)| format!("{count} × {}", kind.name()))
            .collect();
        format!(
            "The jobs of reaim's new_fserver mix that work on a file system, 240 of its 580 hits, with \
             their weights; those that only compute, use memory or talk over the loopback are left out, \
             so figures cannot be compared with those of the whole mix, but for how they change with the \
             number of tasks. Each task, a thread with a directory of its own, does these in random \
             order: {}. Reads and writes are of 1 KiB, in files of {} KiB and a share of {} KiB that all \
             tasks divide among them. What the jobs read (the source of the copies, a directory of 256 \
             files, 345 files for each task) is made and synced before the clock starts. Nothing is \
             synced while it runs, as in the thread.",
            kinds.join(", "),
            self.file_bytes / BLOCK_BYTES,
            self.pool_bytes / BLOCK_BYTES,
        )
    }

    fn axis(&self) -> &'static str {
        "tasks"
    }

    fn unit(&self) -> &'static str {
        "jobs/s"
    }

    fn cases(&self) -> Vec<Case> {
        let case = |&tasks: &u32| Case {
            x: tasks.into(),
            need: Need {
                inodes: task::inodes(tasks),
                // The source of the copies, and one file of each task.
                bytes: (u64::from(tasks) + 1) * self.blocks(tasks) * BLOCK_BYTES,
                threads: tasks,
                existing: false,
            },
            operations: self.jobs(tasks),
            rounds_max: 3,
        };
        self.tasks.iter().map(case).collect()
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
        vec![published()]
    }
}

/// The figures of the orphan file's author.
fn published() -> Published {
    const ROWS: [[f64; 3]; 9] = [
        [1.0, 24375.0, 22941.18],
        [25.0, 162162.16, 278571.43],
        [49.0, 222209.30, 331626.90],
        [73.0, 280147.60, 419447.52],
        [97.0, 315250.00, 481910.83],
        [121.0, 331157.90, 503360.00],
        [145.0, 343769.00, 489081.08],
        [169.0, 355549.56, 519487.68],
        [193.0, 356518.65, 501800.00],
    ];
    Published {
        source: "Jan Kara, April 2015: ext4 on a RAM disk, Xeon server with 48 CPUs and 32 GB, mean of 5 \
                 runs; reaim's whole new_fserver mix without its sync calls; \"patched\" is the orphan file \
                 under a spinlock. The thread heads the figures jobs/s, but they look like jobs per \
                 minute, which is what reaim reports: with 65 jobs for each task, 60 × jobs / figure is a \
                 plausible time for every row (0.16 s for the first)",
        columns: vec!["tasks", "vanilla (as published)", "patched (as published)"],
        rows: ROWS.iter().map(|row| row.to_vec()).collect(),
    }
}
