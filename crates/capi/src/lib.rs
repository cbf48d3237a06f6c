//! Diskwright for C, and for all that speaks it.
//!
//! What callers may rely on is said in the header, `include/diskwright.h`, which is made of the comments here;
//! `docs/c.md` is the guide. This crate adds nothing to [`diskwright`] but a border:
//!
//! - Nothing that a caller gives is used before it is looked at: handles carry a mark of their kind, structures their
//!   size, numbers are checked. What cannot be looked at (that a pointer leads to memory which is the caller's) is in
//!   the rules of the header.
//! - No panic crosses it: `border::call` turns one into an error.
//! - There is no state but in handles.
//!
//! `unsafe` is what such a border is made of. Each function is one block of it whose reason is the same: the caller keeps
//! the rules of the header. The blocks with other reasons lie in `handle`, `border` and `device`.

// The names are those of C.
#![allow(non_camel_case_types)]
// One rule holds for all functions, and stands at the head of the header.
#![allow(clippy::missing_safety_doc)]

// In the order of the header.
mod border;
mod handle;
mod steps;

mod version;

mod error;
mod failure;
mod told;

mod bytes;
mod device;

mod opening;

mod making;

mod image;
mod info;

mod file;

mod directory;
mod walk;

mod attributes;
mod names;
mod xattrs;

mod progress;

mod exchange;

mod building;
mod convert;
mod diff;

mod check;
mod repair;

pub use attributes::*;
pub use building::*;
pub use bytes::*;
pub use check::*;
pub use convert::*;
pub use device::*;
pub use diff::*;
pub use directory::*;
pub use error::*;
pub use exchange::*;
pub use failure::*;
pub use file::*;
pub use image::*;
pub use info::*;
pub use making::*;
pub use names::*;
pub use opening::*;
pub use progress::*;
pub use repair::*;
pub use told::*;
pub use version::*;
pub use walk::*;
pub use xattrs::*;
