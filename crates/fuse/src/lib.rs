//! Answers the kernel's FUSE requests from a [`vfs::FileSystem`], whatever its format.
//!
//! Permissions are checked by the kernel (`default_permissions`, with ACLs); what a kernel file system
//! does besides is done here: times, set-id bits, inheritance of groups and ACLs, errors as numbers.
#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate oracle;

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
mod known;
mod label;
mod listing;
mod names;
mod options;
mod protect;
mod protected;
mod serve;
mod shutdown;
mod space;
mod sync;
mod xattrs;

pub use adapter::Adapter;
pub use durable::Durable;
pub use options::{AccessTimes, OnDamage, Options};
pub use space::SpaceKeeper;
pub use sync::Syncer;
