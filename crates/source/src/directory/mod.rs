//! Directories of the host as sources.
//!
//! [`DirectorySource`] gives all that is in one, and [`HostTree`] single files of it to sources that know the names
//! from elsewhere. Each family of hosts has its own of both: `unix` reads what Unix knows of files, on several
//! threads; `portable` what the standard library tells, which is what there is on Windows. Where there are no files
//! (wasm32-unknown-unknown) opening any directory fails.

mod found;
mod links;
#[cfg(not(unix))]
mod portable;
#[cfg(unix)]
mod unix;

pub(crate) use found::Found;
#[cfg(not(unix))]
pub use portable::DirectorySource;
#[cfg(not(unix))]
pub(crate) use portable::{HostFile, HostTree};
#[cfg(unix)]
pub use unix::DirectorySource;
#[cfg(unix)]
pub(crate) use unix::{HostFile, HostTree};
