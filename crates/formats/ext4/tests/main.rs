//! Tests of this crate's behaviour against e2fsck, the kernel and models.
//!
//! Only tests that choose an allocator are separate programs, because an allocator applies to a whole program.

extern crate diskwright_ext4 as ext4;
#[macro_use]
extern crate testkit;

mod atomicity;
mod bigalloc;
mod changing;
mod check;
mod common;
mod contents;
mod crash;
mod damage;
mod deferred_create;
mod external_journal;
mod files;
mod format;
mod fscrypt;
mod fsx;
mod hostile;
mod journal;
mod mkfs;
mod mmp;
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
mod xattr;
mod xattr_damage;
