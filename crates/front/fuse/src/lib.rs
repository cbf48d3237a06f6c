//! Answers the kernel's FUSE requests with a [`vfs::FileSystem`] of any format.
//!
//! The kernel checks permissions (`default_permissions`, with ACLs). This crate does the other work of a kernel file
//! system: times, set-id bits, inheritance of groups and ACLs, errnos.
#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate testkit;

mod acl;
mod adapter;
mod attributes;
mod caller;
mod clock;
mod data;
mod durable;
mod errno;
mod groups;
mod ioctl;
mod label;
mod listing;
mod lookup_counts;
mod names;
mod options;
mod protect;
mod protected;
mod serve;
mod shutdown;
mod space;
mod sync;
mod xattrs;

pub use adapter::{Adapter, ReadObserver};
pub use durable::Durable;
pub use options::{AccessTimes, OnDamage, Options};
pub use space::SpaceKeeper;
pub use sync::Syncer;
