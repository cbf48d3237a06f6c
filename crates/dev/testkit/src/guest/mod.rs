//! The guest: a current Linux kernel in QEMU, emulated, as a further checker.
//!
//! [`run`] passes a job (a shell script and images) to a machine that all tests of a process share. The machine is
//! started by the first job, and again after a panic or a job that hangs. `scripts/install-guest` installs it.
//!
//! Invariants: A machine runs one job at a time. Images are attached before the script starts and detached after it
//! ends. QEMU does not outlive the test process: a shell waits for the end of the process and kills QEMU.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;

mod installed;
mod judge;
mod machine;
mod qmp;
pub mod totals;
mod tree;

pub(crate) use installed::missing;
pub(crate) use judge::tree_missing;
pub use judge::{
    Access, accepts, accepts_all, crash, crash_with, finds_folded, mount_log, nfs, nfs_job,
    quota_report, reads_encrypted, scrub, shown, tcp,
};
use machine::Machine;
pub use tree::write_tree;

/// A kernel that the guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// The kernel of Debian's newest suite.
    Newest,
    /// The kernel of Debian's stable release.
    Stable,
}

impl Kernel {
    /// Returns the name of its directory under `target/tools/guest`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Stable => "stable",
        }
    }
}

/// An image for a job.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Its file.
    pub path: PathBuf,
    /// True if the guest may not write to it.
    pub read_only: bool,
}

/// Default time limit of a job. Machines that run tests are busy.
pub const JOB_LIMIT: Duration = Duration::from_secs(300);

/// Work for the guest.
#[derive(Clone, Debug)]
pub struct GuestJob {
    /// The kernel to run it on.
    pub kernel: Kernel,
    /// Images, which are `$1`, `$2` and so on in the script.
    pub disks: Vec<Disk>,
    /// Commands for dash, run as root in an empty directory.
    pub script: String,
    /// Files that the script finds under `$FILES`.
    pub files: Vec<(&'static str, PathBuf)>,
    /// The time after which the job is killed, without the machine's start.
    pub limit: Duration,
}

impl GuestJob {
    /// Creates a job for the newest kernel without images.
    pub fn new(script: impl Into<String>) -> Self {
        GuestJob {
            kernel: Kernel::Newest,
            disks: Vec::new(),
            script: script.into(),
            files: Vec::new(),
            limit: JOB_LIMIT,
        }
    }

    /// Adds an image.
    #[must_use]
    pub fn disk(mut self, path: impl AsRef<Path>, read_only: bool) -> Self {
        self.disks.push(Disk { path: path.as_ref().into(), read_only });
        self
    }

    /// Changes the kernel.
    #[must_use]
    pub fn on(self, kernel: Kernel) -> Self {
        GuestJob { kernel, ..self }
    }
}

/// Result of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its exit status.
    pub status: i32,
    /// Standard output and standard error.
    pub output: String,
    /// The kernel's messages while it ran.
    pub log: String,
}

/// Reason why a job did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestFailure {
    /// The reason as a sentence.
    pub reason: String,
    /// Output of the script so far.
    pub output: String,
    /// The end of the guest's console.
    pub console: String,
}

impl fmt::Display for GuestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, output, console } = self;
        write!(f, "{reason}\noutput of the job:\n{output}\nend of the guest's console:\n{console}")
    }
}

/// The machines of this process.
static MACHINES: [Mutex<Option<Machine>>; 2] = [Mutex::new(None), Mutex::new(None)];

/// Runs a job.
///
/// # Errors
/// If the guest does not start, ends by itself, or exceeds the time limit. The next job starts it again.
pub fn attempt(job: &GuestJob) -> Result<Answer, GuestFailure> {
    let mut place = MACHINES[job.kernel as usize].lock();
    let mut machine = match place.take() {
        Some(machine) => machine,
        None => Machine::start(job.kernel)?,
    };
    let answer = machine.run(job)?;
    // A failed machine is dropped, which stops it.
    *place = Some(machine);
    Ok(answer)
}

/// Runs a job that must end, with any exit status.
///
/// # Panics
/// If [`attempt`] fails.
#[track_caller]
pub fn run(job: &GuestJob) -> Answer {
    attempt(job).unwrap_or_else(|failure| panic!("{failure}"))
}
