//! Integration tests of this crate, checked by xfs_repair, the kernel and models.
//!
//! Only tests that choose an allocator, which affects a whole program, are separate programs.

extern crate diskwright_xfs as xfs;
#[macro_use]
extern crate testkit;

mod attributes;
mod changes;
mod changing;
mod check_damage;
mod check_sound;
mod checking;
mod common;
mod contents;
mod crash;
mod deferred_create;
mod directories;
mod external_log;
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
mod log_states;
mod log_writing;
mod making;
mod metadir;
mod mkfs;
mod numbers;
mod opening;
mod parents;
mod quotas;
mod realtime;
mod realtime_change;
mod realtime_check;
mod realtime_crash;
mod realtime_groups_change;
mod realtime_groups_check;
mod realtime_groups_making;
mod realtime_groups_repair;
mod realtime_growing;
mod realtime_making;
mod repair;
mod resize;
mod sharing;
mod space;
mod support;
mod trials;
mod tune;
mod unlinked;
mod zoned;
