//! Contestants of a comparison: a contestant is a place where a workload can be run again and again, each time from
//! the start.

use operation::profile::ListingProfile;
use serde::Serialize;

use crate::error::Result;
use crate::target::{Host, InProcess};

/// What a run needs of a file system that is made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Files and directories there will be at once.
    pub inodes: u64,
    /// Bytes of file contents there will be at once.
    pub bytes: u64,
    /// Threads, each of which works in a directory of its own.
    pub threads: u32,
    /// The workload reads what is there, and works on all of it instead of in a place of its own.
    pub existing: bool,
}

/// Whose work a contestant shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// This project's.
    Ours,
    /// The kernel's own file system, of the same format as one of ours: what ours is held against.
    Kernel,
    /// Anything else, for instance a directory that was given.
    #[default]
    Other,
}

/// What a report says of a contestant.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Description {
    /// Its name in tables, as on the command line: `memory:xfs,^parent`.
    pub name: String,
    /// Whose work it shows: the summary of a report holds one of ours against one of the kernel's.
    pub side: Side,
    /// The format of its file system, `ext4` or `xfs`: contestants of one format are held against each
    /// other. Empty if it does not matter.
    pub format: String,
    /// How many of its settings are not what one gets who chooses nothing: features that are there or
    /// are missing, and ways of doing things. For each side, a summary shows the contestant with the fewest,
    /// so that the default stands there, and not whatever was fastest by chance.
    pub deviations: u32,
    /// What it is, in a sentence.
    pub what: String,
    /// The features of its file system, in the format's own terms, as far as they can be told.
    pub features: String,
    /// The name of the contestant that it differs from in one thing: its overhead is measured against
    /// that one.
    pub base: Option<String>,
    /// What makes its figures differ from those of others for other reasons than the file system:
    /// system calls, caches, a missing log.
    pub remarks: Vec<String>,
}

/// A place where workloads can be run.
pub trait Contestant {
    /// What a report says of it.
    fn describe(&self) -> Description;

    /// A file system, or a directory, in which nothing of an earlier run is left.
    ///
    /// # Errors
    /// `Unsupported` with the reason if this machine or this user cannot have it.
    fn start(&self, need: &Need) -> Result<Box<dyn Session>>;
}

/// A contestant that is ready. Dropped, it removes whatever it made for the run.
pub trait Session {
    /// Where to work.
    fn target(&self) -> AnyTarget<'_>;

    /// Makes everything durable and forgets what is cached, so that the next access is a first one.
    ///
    /// # Errors
    /// `Unsupported` if there is no way to do that here.
    fn drop_caches(&mut self) -> Result<()>;

    /// The size of the file system in bytes, for the report.
    fn size(&self) -> u64;

    /// What tells where the time of listings goes, if the target is a file system that measures that.
    fn profile(&self) -> Option<&ListingProfile> {
        None
    }

    /// How far the log has come, in bytes since some moment: two of them say how much was written in
    /// between. `None` if there is no log, or none that tells.
    ///
    /// # Errors
    /// If it cannot be read.
    fn log_position(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// Ends the run; what was asked to be durable is.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Any target. Workloads are written for [`Target`](crate::target::Target) and compiled for each kind, so
/// that nothing stands between them and the operation that is timed.
pub enum AnyTarget<'a> {
    /// A file system in this process.
    InProcess(InProcess<'a>),
    /// A directory of a mounted one.
    Host(&'a Host),
}

/// Evaluates an expression for whatever kind of target it is.
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
