//! Trials that every format must pass: random operations in one thread and in several, compared with
//! the reference model, and operations that fail, which must leave no trace.
//!
//! Everything here panics with the full story, because its callers are tests.

mod failing;
mod random;
mod watchdog;

use std::sync::Arc;

use blockdev::{BlockDevice, MemoryDevice};

pub use failing::{fail_allocations, fail_reads};
pub use random::{one_thread, several_threads};
pub use watchdog::Watchdog;

use crate::crash::{Mounted, Target};

/// What is tried.
pub struct Trial<'t> {
    /// Makes and opens file systems.
    pub target: &'t dyn Target,
    /// Its unit of allocation, in bytes.
    pub block_bytes: u64,
    /// What it is called where a trial fails.
    pub name: String,
    /// Panics unless an image that was closed is sound.
    pub check: &'t (dyn Fn(&MemoryDevice) + Sync),
}

impl Trial<'_> {
    fn make(&self) -> Arc<MemoryDevice> {
        let made = self.target.make();
        Arc::new(made.unwrap_or_else(|error| panic!("{}: {error}", self.name)))
    }

    #[track_caller]
    fn open(&self, device: Arc<dyn BlockDevice>) -> Box<dyn Mounted> {
        self.target.open(device).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}
