//! File creation in one directory: the table of 2018 about the search for free space in XFS directories.

use super::fill::{Lane, enter_all, files_of, fill};
use super::repeats::{Durability, case, repeats, step};
use super::{Case, Context, Headline, Job, Measure, Published, Theirs, TimedStep};
use crate::contestant::Session;
use crate::cost::Cost;
use crate::error::Result;
use crate::target::Target;
use crate::with_target;

/// Creates empty files in one directory.
#[derive(Clone, Debug)]
pub struct Create {
    /// Numbers of files in a directory, one case for each; at least 1.
    pub files: Vec<u64>,
    /// Number of threads, each with a separate directory; at least 1.
    pub threads: u32,
    /// True if each file is opened, synced and closed before the next.
    pub fsync: bool,
}

impl Create {
    /// The numbers of files in the thread of 2018.
    pub const SEED_COUNTS: [u64; 7] =
        [10_000, 20_000, 100_000, 200_000, 1_000_000, 2_000_000, 10_000_000];
}

impl Job for Create {
    fn name(&self) -> &'static str {
        "create"
    }

    fn what(&self) -> String {
        format!(
            "Makes empty files in a directory that grows, as Dave Chinner's tables of 2018 about XFS \
             directories do; {}. The names are fs_mark's, \
             40 bytes, and made outside of what is timed; {}. Where a step would have less than 100,000 \
             files, several directories are filled one after another; times are then those of all of \
             them, and that of one is given beside, as is how long a sync takes afterwards and, where it \
             can be told, what went to the log until then.",
            own_directories(self.threads),
            if self.fsync {
                "each file is opened, synced (fsync) and closed before the next is created"
            } else {
                "a file is made without being opened (mknod), and nothing is made durable while the \
                 clock runs; it stops when the first entry of the directory was listed, so that nothing is \
                 put off"
            }
        )
    }

    fn axis(&self) -> &'static str {
        "files"
    }

    fn unit(&self) -> &'static str {
        "files/s"
    }

    fn cases(&self) -> Vec<Case> {
        self.files.iter().map(|&files| case(files, self.threads, 1)).collect()
    }

    fn run(
        &self,
        case: &Case,
        session: &mut dyn Session,
        context: &Context<'_>,
    ) -> Result<Vec<TimedStep>> {
        let filling = Filling { files: case.x, threads: self.threads, fsync: self.fsync };
        let durability = Durability::before(session)?;
        let cost = with_target!(session.target(), target => filling.run(target, context))?;
        let name = if self.fsync { "create, fsync" } else { "create" };
        let mut made = step(name, case.x, self.threads, cost);
        made.extras.extend(durability.after(session, made.operations)?);
        Ok(vec![made])
    }

    fn published(&self) -> Vec<Published> {
        published()
    }

    fn headlines(&self) -> Vec<Headline> {
        vec![Headline {
            name: "flatness: the rate of large directories by that of small ones",
            step: "create",
            measure: Measure::Flatness,
            theirs: vec![
                Theirs { about: "2018, + reverse, 10 M files by 10 k", ratio: 16.9 / 19.3 },
                Theirs { about: "2019, as merged, 10 M files by 10 k", ratio: 18.1 / 24.3 },
            ],
        }]
    }
}

/// Describes the assignment of directories to threads.
pub(super) fn own_directories(threads: u32) -> String {
    match threads {
        1 => "one thread works in one directory".to_owned(),
        _ => format!("each of {threads} threads has its own directory"),
    }
}

/// Directories to fill.
pub(super) struct Filling {
    /// Number of files in each.
    pub(super) files: u64,
    /// Number of directories that are filled concurrently.
    pub(super) threads: u32,
    /// True if files are opened, synced and closed.
    pub(super) fsync: bool,
}

impl Filling {
    /// Returns the number of directories.
    pub(super) fn directories(&self) -> u64 {
        repeats(self.files, self.threads) * u64::from(self.threads)
    }

    /// Fills the directories and checks their contents. Returns the cost of filling.
    pub(super) fn run<T: Target>(&self, target: &T, context: &Context<'_>) -> Result<Cost> {
        let mut cost = Cost::default();
        for repeat in 0..repeats(self.files, self.threads) {
            let first = repeat * u64::from(self.threads);
            let numbers = first..first + u64::from(self.threads);
            let lanes = numbers.map(|number| Lane::make(target, number, context));
            let mut lanes = lanes.collect::<Result<Vec<_>>>()?;
            cost += fill(&mut lanes, self.files, context, |lane, name| {
                if !self.fsync {
                    return target.make_file(lane.dir(), name);
                }
                let file = target.create(lane.dir(), name, false)?;
                target.sync_file(&file)?;
                target.close(file)
            })?;
            cost += enter_all(target, &lanes, context)?;
            for lane in &lanes {
                let found = files_of(target, &lane.top, &[], context)?;
                lane.made.expect(&found, &lane.name)?;
            }
        }
        Ok(cost)
    }
}

/// The tables of the thread of 2018, and of the resulting change.
fn published() -> Vec<Published> {
    let thread = Published {
        source: "Dave Chinner, \"xfs: speed up directory bestfree block scanning\", linux-xfs, 3 \
                 January 2018; a prerelease of Linux 4.15, machine unknown",
        columns: vec![
            "files",
            "vanilla, s",
            "vanilla, files/s",
            "loop-fix, s",
            "loop-fix, files/s",
            "+reverse, s",
            "+reverse, files/s",
        ],
        rows: vec![
            vec![10e3, 0.54, 18.5e3, 0.53, 18.9e3, 0.52, 19.3e3],
            vec![20e3, 1.10, 18.1e3, 1.05, 19.0e3, 1.00, 20.0e3],
            vec![100e3, 4.21, 23.8e3, 3.91, 25.6e3, 3.58, 27.9e3],
            vec![200e3, 9.66, 20.7e3, 7.37, 27.1e3, 7.08, 28.3e3],
            vec![1e6, 86.61, 11.5e3, 48.26, 20.7e3, 38.33, 26.1e3],
            vec![2e6, 206.13, 9.7e3, 129.71, 15.4e3, 82.20, 24.3e3],
            vec![10e6, 2843.57, 3.5e3, 1817.39, 5.5e3, 591.78, 16.9e3],
        ],
    };
    let merged = Published {
        source: "Dave Chinner, \"xfs: reverse search directory freespace indexes\", as merged in \
                 2019; kernel and machine unknown",
        columns: vec!["files", "before, s", "before, files/s", "reverse, s", "reverse, files/s"],
        rows: vec![
            vec![10e3, 0.41, 24.3e3, 0.41, 24.3e3],
            vec![20e3, 0.74, 27.0e3, 0.75, 26.7e3],
            vec![100e3, 3.81, 26.4e3, 3.27, 30.6e3],
            vec![200e3, 8.58, 23.3e3, 6.71, 29.8e3],
            vec![1e6, 85.69, 11.7e3, 37.67, 26.5e3],
            vec![2e6, 280.31, 7.1e3, 79.55, 25.2e3],
            vec![10e6, 3913.26, 2.5e3, 552.89, 18.1e3],
        ],
    };
    vec![thread, merged]
}
