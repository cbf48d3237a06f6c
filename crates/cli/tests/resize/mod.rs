//! `grow` and `shrink`: of whole files, and in partitions.

mod disks;
mod files;
mod logical;
