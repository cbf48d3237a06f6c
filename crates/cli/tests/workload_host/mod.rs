//! Workloads on file systems that the kernel has mounted: that operations do there what they do in the
//! reference model, and that nothing is left behind, however a run ends.

mod directory;
mod driver;
mod ended;
mod fs_mark;
mod kernel;
mod traces;

use workload::contestant::Need;

/// Room for everything that tests here do.
const NEED: Need = Need { inodes: 2000, bytes: 64 << 20, threads: 2, existing: false };
