//! Who is told what a checker finds and how far it is.

use std::num::NonZero;

use crate::Finding;

/// A part of a check, in the order in which the parts are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The superblock, its copies, descriptors or headers of groups, journal or log.
    Superblock,
    /// Trees and bitmaps that say what is free, where they are read by themselves.
    Space,
    /// Inodes and the blocks that they own.
    Inodes,
    /// Names, and what they lead to.
    Directories,
    /// What is used and referred to, against what the image says is.
    Counts,
}

impl Phase {
    /// What is being looked at, in lower case, for a line of progress.
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

/// Who is told. All methods may be called by several threads at once.
pub trait Observer: Sync {
    /// Something is wrong.
    fn found(&self, finding: Finding);

    /// `done` of `total` units of a phase are done; units are whatever the phase counts. Called often, at least
    /// once in each phase.
    fn progress(&self, _phase: Phase, _done: u64, _total: u64) {}

    /// Whether the check is to end soon; what was found until then was told.
    fn is_cancelled(&self) -> bool {
        false
    }
}

/// How to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Most threads that work at once.
    pub threads: NonZero<usize>,
    /// Check the image as it lies, without what its journal or log holds.
    pub norecovery: bool,
}

impl Default for Options {
    /// As many threads as the machine runs at once, at most 8; with what journal or log hold.
    fn default() -> Self {
        let threads = std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
        let threads = threads.min(const { NonZero::new(8).unwrap() });
        Self { threads, norecovery: false }
    }
}

impl Options {
    /// The same with at most that many threads.
    #[must_use]
    pub const fn with_threads(mut self, threads: NonZero<usize>) -> Self {
        self.threads = threads;
        self
    }

    /// The same, but of the image as it lies, if `yes`.
    #[must_use]
    pub const fn with_norecovery(mut self, yes: bool) -> Self {
        self.norecovery = yes;
        self
    }
}

/// What a check looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Whether everything was looked at: the check was not cancelled, and nothing that is damaged kept it from
    /// going on.
    pub is_complete: bool,
    /// Transactions of the journal or log that were replayed in memory first.
    pub transactions_replayed: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks (ext4 with `bigalloc`: clusters) in use.
    pub blocks_used: u64,
    /// All blocks (or clusters).
    pub blocks: u64,
}
