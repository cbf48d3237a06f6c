//! Images that are not plain local files: their addresses ([`ImageLocation`]) and the object stores that contain them
//! ([`store`]). Remote images are read lazily ([`lazy`]), objects by ranges ([`object`]), with an optional disk cache
//! ([`disk_cache`]). Virtual disks are read by [`disk`] and verified by [`qcow2`], compressed images by [`mod@zstd`].
//!
//! Asynchronous work runs on one runtime of this crate ([`runtime`]). It starts on first use; local files do not need
//! it.

pub mod disk;
pub mod disk_cache;
pub mod lazy;
pub mod object;
pub mod qcow2;
pub mod runtime;
pub(crate) mod sequential;
pub mod store;
pub mod transport;
pub mod zstd;

mod chain;
mod kinds;

pub use chain::NamedFiles;
pub use kinds::{ImageLocation, OpenPlace};
pub use store::StoreError;
