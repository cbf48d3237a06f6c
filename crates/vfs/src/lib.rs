//! The file-system interface: an inode-level trait, its types and errors, and a path API over it.
#![forbid(unsafe_code)]

pub mod chain;
pub mod data;
mod error;
mod filesystem;
mod flags;
pub mod locks;
pub mod names;
pub mod opens;
pub mod path;
mod profile;
pub mod reserve;
mod types;

pub use error::{Corruption, Error, Result, Unsupported};
pub use filesystem::FileSystem;
pub use flags::{FileAttributes, FileAttributesChange, InodeFlags, Protection};
pub use path::Paths;
pub use profile::{ListingClock, ListingProfile, ListingStep, ListingTimes};
pub use types::*;
