//! Programs on our mounts: git, cargo, tar, and many threads that change a tree and verify its
//! contents.

mod archives;
mod git;
mod stress;
