//! Programs at work on our mounts: git, cargo, tar; and many threads that change a tree and know what is in it.

mod archives;
mod git;
#[path = "../place/mod.rs"]
mod place;
mod stress;
