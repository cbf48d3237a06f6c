//! Journal tests: logs that we wrote, replayed by e2fsck and the kernel; logs of the kernel and debugfs, replayed by
//! us; and damaged journals.

mod damage;
mod ours;
mod states;
pub(crate) mod support;
mod theirs;
