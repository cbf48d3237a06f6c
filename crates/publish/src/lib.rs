//! Images published in object storage: cut into chunks that are named by the digest of their contents, and put together by
//! a manifest that has a name. It knows no format of file systems.
//!
//! Below a prefix of a store there are
//! - `chunks/ab/abcd…`: a zstd frame, named by the SHA-256 of what it holds,
//! - `manifests/DIGEST`: which chunks make an image ([`manifest`]), named by the SHA-256 of the object,
//! - `names/NAME`: which manifest has that name,
//! - `marks/KIND-…`: who publishes and who sweeps at the moment.
//!
//! Invariant: what a name names is there, with every chunk that it needs. Whoever publishes puts chunks before the
//! manifest and the manifest before the name; [`sweep()`] removes only while nobody publishes, which marks see to.
#![forbid(unsafe_code)]

pub mod manifest;
pub mod record;

mod ask;
mod chunk;
mod cut;
mod digest;
mod error;
mod holes;
mod layout;
mod mark;
mod open;
mod publish;
mod published;
mod request;
mod sweep;

pub use digest::Digest;
pub use error::Error;
pub use layout::check_name;
pub use manifest::{Facts, Manifest};
pub use mark::Patience;
pub use open::{find, is_manifest, open};
pub use publish::{CHUNK_BYTES_DEFAULT, Observer, Options, Report, Silent, Stage, publish};
pub use published::Published;
pub use sweep::{SweepOptions, Swept, sweep};
