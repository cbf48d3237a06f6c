//! Long runs of seeded cases in batches whose results are kept in a file, so that a run can be interrupted and resumed.
//!
//! `DISKWRIGHT_DAMAGE_RUN=FILE,CASES[,FIRST]` requests a run: `CASES` cases with seeds from `FIRST` (0), in batches of
//! [`BATCH_CASES`]. Each finished batch is a line of the file: the run's name, the first seed, the number of cases and
//! the failed seeds. Batches in the file are not run again.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of cases of a batch.
pub const BATCH_CASES: u64 = 1000;

/// The environment variable that requests a run.
const VARIABLE: &str = "DISKWRIGHT_DAMAGE_RUN";

/// A run of seeded cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    name: &'static str,
    /// File of the results, if they are kept.
    file: Option<PathBuf>,
    first: u64,
    cases: u64,
}

impl Batches {
    /// Returns the run requested by the environment, otherwise one of `cases` cases without a results file.
    ///
    /// # Panics
    /// If the environment variable is malformed.
    pub fn asked(name: &'static str, cases: u64) -> Self {
        match std::env::var(VARIABLE) {
            Ok(asked) => Self::named(name, &asked)
                .unwrap_or_else(|| panic!("{VARIABLE} is {asked}, expected FILE,CASES[,FIRST]")),
            Err(_) => Self { name, file: None, first: 0, cases },
        }
    }

    fn named(name: &'static str, asked: &str) -> Option<Self> {
        let mut parts = asked.split(',');
        let file = Some(PathBuf::from(parts.next().filter(|file| !file.is_empty())?));
        let cases = parts.next()?.parse().ok()?;
        let first = parts.next().map_or(Ok(0), str::parse).ok()?;
        parts.next().is_none().then_some(Self { name, file, first, cases })
    }

    /// Calls `case` with each seed without a result; it returns a fault or `None`. Prints each fault immediately.
    ///
    /// # Panics
    /// At the end if there were faults, and if the results file cannot be written.
    pub fn run(&self, mut case: impl FnMut(u64) -> Option<String>) {
        self.run_batches(|seeds| seeds.filter_map(|seed| self.told(seed, case(seed)?)).collect());
    }

    /// Like [`Self::run`], with several threads: for cases that wait most of their time.
    ///
    /// # Panics
    /// Same as [`Self::run`], and if a case panics.
    pub fn run_on(&self, threads: usize, case: impl Fn(u64) -> Option<String> + Sync) {
        self.run_batches(|seeds| {
            let (next, wrong) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
            let work = || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if let Some(fault) = case(seed) {
                        wrong.lock().unwrap().extend(self.told(seed, fault));
                    }
                }
            };
            std::thread::scope(|scope| {
                (0..threads).for_each(|_| drop(scope.spawn(work)));
            });
            let mut wrong = wrong.into_inner().unwrap();
            wrong.sort_unstable();
            wrong
        });
    }

    /// Prints a fault.
    fn told(&self, seed: u64, fault: String) -> Option<(u64, String)> {
        println!("WRONG {} seed {seed}: {fault}", self.name);
        Some((seed, fault))
    }

    /// Runs the batches that have no result. `run` returns the failed seeds of one, with their faults.
    fn run_batches(&self, mut run: impl FnMut(Range<u64>) -> Vec<(u64, String)>) {
        let mut faults = Vec::new();
        let end = self.first + self.cases;
        for start in (self.first..end).step_by(BATCH_CASES as usize) {
            let seeds = start..end.min(start + BATCH_CASES);
            let count = (seeds.end - seeds.start) as usize;
            if self.file.as_deref().is_some_and(|file| self.has(file, start, count)) {
                continue;
            }
            let wrong = run(seeds);
            if let Some(file) = &self.file {
                let failed: Vec<String> = wrong.iter().map(|(seed, _)| seed.to_string()).collect();
                let line = format!("{} wrong {}", self.key(start, count), failed.join(" "));
                let written = append(file, line.trim_end());
                written.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            }
            faults.extend(wrong.iter().map(|(seed, fault)| format!("seed {seed}: {fault}")));
        }
        assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    }

    /// Returns the start of a batch's line.
    fn key(&self, start: u64, cases: usize) -> String {
        format!("{} first {start} cases {cases}", self.name)
    }

    fn has(&self, file: &Path, start: u64, cases: usize) -> bool {
        let key = self.key(start, cases) + " ";
        fs::read_to_string(file).is_ok_and(|text| text.lines().any(|line| line.starts_with(&key)))
    }
}

fn append(file: &Path, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    writeln!(file, "{line}")?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_where_it_stopped() {
        let folder = crate::scratch();
        let file = folder.path().join("results");
        let asked = format!("{},2500,7", file.display());
        let run = Batches::named("test", &asked).unwrap();
        let mut seeds = Vec::new();
        // The first attempt stops in the second batch.
        let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run.run(|seed| {
                assert!(seed < 1500, "stopped");
                None
            });
        }));
        assert!(stopped.is_err());
        run.run(|seed| {
            seeds.push(seed);
            None
        });
        assert_eq!((seeds[0], seeds.len()), (1007, 1500));
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text.lines().next(), Some("test first 7 cases 1000 wrong"));
        assert_eq!(text.lines().count(), 3);
        assert!(Batches::named("test", "file").is_none() && Batches::named("test", ",1").is_none());
    }
}
