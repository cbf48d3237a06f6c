//! The file-system interface: an inode-level trait, its types and errors, and a path API over it. [`fault`] contains
//! failures below a file system, and [`check`] the findings of checks.
#![forbid(unsafe_code)]

pub mod acl;
pub mod check;
pub mod clock;
pub mod deleted;
mod encryption;
mod error;
pub mod fault;
mod filesystem;
mod flags;
pub mod hint;
mod io_error;
pub mod names;
pub mod ownership;
pub mod path;
pub mod peer;
pub mod quota;
pub mod runs;
pub mod served;
pub mod survey;
pub mod text;
mod types;

pub use encryption::{EncryptionFault, KeyName};
pub use error::{Corruption, Error, Result, Unsupported};
pub use filesystem::FileSystem;
pub use flags::{FileAttributes, FileAttributesChange, InodeFlags, Protection};
pub use path::Paths;
pub use types::*;
