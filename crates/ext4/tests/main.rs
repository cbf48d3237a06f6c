//! What this crate promises, judged by e2fsck, the kernel and models.
//!
//! Programs of their own are only those that choose an allocator, which counts for a whole program.

extern crate diskwright_ext4 as ext4;
#[macro_use]
extern crate oracle;

mod atomicity;
mod bigalloc;
mod changing;
mod check;
mod common;
mod contents;
mod crash;
mod damage;
mod files;
mod format;
mod fsx;
mod hostile;
mod journal;
mod mkfs;
mod names;
mod no_space;
mod orphans;
mod others;
mod quotas;
mod random;
mod repair;
mod resize;
mod small_cache;
mod tune;
mod waiting;
mod xattr;
mod xattr_damage;
