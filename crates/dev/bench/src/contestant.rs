//! Contestants of a comparison: places where a workload can be run repeatedly, each time from the same state.

use operations::profile::ListingProfile;
use serde::Serialize;

use crate::error::Result;
use crate::target::{Host, InProcess};

/// Requirements of a run for a new file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Maximum number of files and directories at a time.
    pub inodes: u64,
    /// Maximum number of bytes of file contents at a time.
    pub bytes: u64,
    /// Number of threads. Each works in a separate directory.
    pub threads: u32,
    /// True if the workload reads existing files, in the whole file system instead of a separate directory.
    pub existing: bool,
}

/// Origin of a contestant's file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// This project.
    Ours,
    /// The kernel's own file system, with the same format as one of ours, as the reference.
    Kernel,
    /// Anything else, for instance a directory of the user.
    #[default]
    Other,
}

/// Description of a contestant in a report.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Description {
    /// Name in tables, as on the command line: `memory:xfs,^parent`.
    pub name: String,
    /// Origin: the summary of a report compares one of ours with one of the kernel's.
    pub side: Origin,
    /// Format of its file system, `ext4` or `xfs`: contestants of the same format are compared. Empty if it does not
    /// matter.
    pub format: String,
    /// Number of settings that differ from the defaults: features, and ways of execution. For each side, a summary
    /// shows the contestant with the fewest deviations, so that it shows the defaults and not the fastest by chance.
    pub deviations: u32,
    /// Description in a sentence.
    pub what: String,
    /// Features of its file system, in the format's own terms, as far as they are known.
    pub features: String,
    /// Name of the contestant that differs in one setting, which is the base of its overhead.
    pub base: Option<String>,
    /// Reasons other than the file system for different results: system calls, caches, a missing log.
    pub remarks: Vec<String>,
}

/// A place where workloads can be run.
pub trait Contestant {
    /// Returns its description for a report.
    fn describe(&self) -> Description;

    /// Returns an empty file system or directory.
    ///
    /// # Errors
    /// `Unsupported` with the reason, if this machine or user cannot provide it.
    fn start(&self, need: &Need) -> Result<Box<dyn Session>>;
}

/// A contestant that is ready for a run. Dropping it removes everything created for the run.
pub trait Session {
    /// Returns the target of the workload.
    fn target(&self) -> AnyTarget<'_>;

    /// Makes everything durable and drops all caches, so that the next access is cold.
    ///
    /// # Errors
    /// `Unsupported` if that is impossible.
    fn drop_caches(&mut self) -> Result<()>;

    /// Returns the size of the file system in bytes, for the report.
    fn size(&self) -> u64;

    /// Returns the profile of listings, if the target is a file system that measures them.
    fn profile(&self) -> Option<&ListingProfile> {
        None
    }

    /// Returns a monotonic position in the log in bytes: the difference of two is the number of bytes written in
    /// between. `None` without a log or such a position.
    ///
    /// # Errors
    /// If it cannot be read.
    fn log_position(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Ends the run. Synced changes are durable.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Any target. Workloads are generic over [`Target`](crate::target::Target) and compiled for each kind, so that no
/// dispatch is timed.
pub enum AnyTarget<'a> {
    /// A file system in this process.
    InProcess(InProcess<'a>),
    /// A directory of a mounted file system.
    Host(&'a Host),
}

/// Evaluates an expression for any kind of target.
#[macro_export]
macro_rules! with_target {
    ($any:expr, $target:ident => $body:expr) => {
        match $any {
            $crate::contestant::AnyTarget::InProcess($target) => {
                let $target = &$target;
                $body
            }
            $crate::contestant::AnyTarget::Host($target) => $body,
        }
    };
}
