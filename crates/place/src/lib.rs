//! Images that are no local files: where they lie ([`Place`]), and the object stores that hold them ([`store`]).
//! What is far away is read lazily ([`lazy`]), an object by its ranges ([`object`]), and can be kept on disk
//! ([`disk_cache`]). Virtual disks of other programs are [`disk`], verified by [`qcow2`], compressed images [`mod@zstd`].
//!
//! What is asynchronous runs on one runtime of this crate ([`runtime`]), which exists from the first use on; who asks for
//! a local file never starts it.
#![forbid(unsafe_code)]

pub mod disk;
pub mod disk_cache;
pub mod lazy;
pub mod object;
pub mod qcow2;
pub mod runtime;
pub mod store;
pub mod transport;
pub mod zstd;

mod chain;
mod open;
mod place;

pub use chain::NamedFiles;
pub use open::{OpenError, OpenPlace};
pub use place::Place;
pub use store::StoreError;
