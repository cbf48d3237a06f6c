//! Workloads on mounted kernel file systems: operations have the same results as in the reference
//! model, and nothing is left behind, however a run ends.

mod directory;
mod driver;
mod ended;
mod fs_mark;
mod kernel;
mod traces;

use bench::contestant::Need;

/// Space for all tests here.
const NEED: Need = Need { inodes: 2000, bytes: 64 << 20, threads: 2, existing: false };
