//! The journal: what we write, replayed by e2fsck and the kernel; what the kernel and debugfs
//! write, replayed by us; and journals that are damaged.

mod damage;
mod ours;
mod states;
pub(crate) mod support;
mod theirs;
