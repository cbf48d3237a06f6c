//! Receivers of findings and progress, options and summary of a check.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::check::{Code, Finding};

/// A phase of a check, in the order of execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The superblock, its copies, descriptors or headers of groups, journal or log.
    Superblock,
    /// Trees and bitmaps of free space, if they are read separately.
    Space,
    /// Inodes and their blocks.
    Inodes,
    /// Directory entries and their inodes.
    Directories,
    /// Comparison of usage and references with the image's records.
    Counts,
}

impl Phase {
    /// Returns the subject of the phase in lower case, for a line of progress.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Space => "space",
            Self::Inodes => "inodes",
            Self::Directories => "directories",
            Self::Counts => "counts",
        }
    }
}

/// A receiver of findings and progress. All methods may be called by several threads at once.
pub trait Observer: Sync {
    /// Receives a finding.
    fn found(&self, finding: Finding);

    /// Receives progress: `done` of `total` units of a phase, in units of that phase. Called often, at least once in
    /// each phase.
    fn progress(&self, _phase: Phase, _done: u64, _total: u64) {}

    /// Returns whether the check should end soon. Findings up to that point are reported.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// An observer that ignores findings and progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn found(&self, _: Finding) {}
}

/// An observer that keeps findings.
#[derive(Debug, Default)]
pub struct FindingList(Mutex<Vec<Finding>>);

impl FindingList {
    /// Returns the findings in the order of their reports.
    #[must_use]
    pub fn into_findings(self) -> Vec<Finding> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the findings as text, for messages of tests.
    #[must_use]
    pub fn into_texts(self) -> Vec<String> {
        self.into_findings().iter().map(|finding| format!("{finding:?}")).collect()
    }
}

impl Observer for FindingList {
    fn found(&self, finding: Finding) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(finding);
    }
}

/// An observer that counts findings.
#[derive(Debug, Default)]
pub struct FindingCounter {
    found: AtomicU64,
    except: Vec<&'static Code>,
}

impl FindingCounter {
    /// Returns a counter that ignores findings with these codes.
    #[must_use]
    pub fn except(codes: &[&'static Code]) -> Self {
        Self { found: AtomicU64::new(0), except: codes.to_vec() }
    }

    /// Returns the number of findings so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }
}

impl Observer for FindingCounter {
    fn found(&self, finding: Finding) {
        if !self.except.contains(&finding.code) {
            self.found.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Options of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Maximum number of concurrent threads.
    pub threads: NonZero<usize>,
    /// Checks the image without a replay of its journal or log.
    pub norecovery: bool,
}

impl Default for Options {
    /// As many threads as the machine has processors, at most 8; with a replay of the journal or log.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let threads = threads.min(const { NonZero::new(8).unwrap() });
        Self { threads, norecovery: false }
    }
}

impl Options {
    /// Sets the maximum number of threads.
    #[must_use]
    pub const fn with_threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// Disables the replay of the journal or log if `yes`.
    #[must_use]
    pub const fn with_norecovery(mut self, yes: bool) -> Self {
        self.norecovery = yes;
        self
    }
}

/// Extent and totals of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// True if everything was checked: the check was not cancelled, and no damage prevented it from continuing.
    pub is_complete: bool,
    /// Number of transactions of the journal or log that were replayed in memory first.
    pub transactions_replayed: u64,
    /// Number of inodes in use.
    pub inodes: u64,
    /// Number of directories among them.
    pub directories: u64,
    /// Number of blocks (ext4 with `bigalloc`: clusters) in use.
    pub blocks_used: u64,
    /// Number of all blocks (or clusters).
    pub blocks: u64,
}
