//! Programs at work on our mounts: git, cargo, tar; and many threads that change a tree and know what is in it.

mod archives;
mod git;
mod stress;
