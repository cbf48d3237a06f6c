//! What this crate promises, judged by xfs_repair, the kernel and models.
//!
//! Programs of their own are only those that choose an allocator, which counts for a whole program.

extern crate diskwright_xfs as xfs;

mod attributes;
mod changes;
mod changing;
mod check_damage;
mod check_sound;
mod checking;
mod common;
mod contents;
mod crash;
mod directories;
mod foreign;
mod foreign_changed;
mod group_headers;
mod groups;
mod hostile;
mod hostile_attributes;
mod hostile_maps;
mod inherited;
mod kernel_crash;
mod kernel_intents;
mod kernel_probe;
mod leaf_buffers;
mod log_end;
mod log_recovery;
mod log_writing;
mod making;
mod mkfs;
mod numbers;
mod opening;
mod parents;
mod repair;
mod resize;
mod sharing;
mod space;
mod support;
mod trials;
mod unlinked;
mod waiting;
