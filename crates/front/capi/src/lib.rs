//! Diskwright for C, and for languages that can call C.
//!
//! The header `include/diskwright.h` specifies the interface; it is generated from the comments of this crate.
//! `docs/c.md` is the guide. The crate is only a boundary around [`diskwright`]:
//!
//! - Every input is validated before it is used: handles have a mark of their kind, structures contain their size,
//!   numbers are checked. The rules of the header cover what cannot be checked, such as the validity of pointers.
//! - No panic crosses the boundary: `border::call` converts it into an error.
//! - All state is in handles.
//!
//! Most functions are one `unsafe` block with the same reason: the caller follows the rules of the header. The blocks
//! with other reasons are in `handle`, `border` and `device`.

// The names are those of C.
#![allow(non_camel_case_types)]
// The header states one rule for all functions at its start.
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
mod clones;
mod convert;
mod diff;

mod check;
mod repair;

pub use attributes::*;
pub use building::*;
pub use bytes::*;
pub use check::*;
pub use clones::*;
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
