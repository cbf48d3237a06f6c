//! `grow` and `shrink` on whole files and in partitions.

mod disks;
mod files;
mod logical;
