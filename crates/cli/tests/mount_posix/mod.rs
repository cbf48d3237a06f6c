//! Suites that others wrote for POSIX file systems, on our mounts: `pjdfstest`, which knows what each call
//! must do and which error it must give, and `fsx`, which changes a file at random and knows its contents.

mod fsx;
mod pjdfstest;
mod side_by_side;
