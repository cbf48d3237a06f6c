//! Journal tests: logs written by this crate, replayed by e2fsck and the kernel; logs of the kernel and debugfs,
//! replayed by this crate; and damaged journals.

mod damage;
mod ours;
mod states;
pub(crate) mod support;
mod theirs;
