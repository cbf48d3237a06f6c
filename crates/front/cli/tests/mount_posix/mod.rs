//! External test suites for POSIX file systems, on our mounts. `pjdfstest` checks the effect and
//! the error of each call. `fsx` changes a file at random and compares its contents.

mod fsx;
mod pjdfstest;
mod side_by_side;
