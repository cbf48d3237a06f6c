//! Publishes images in object storage. An image is cut into chunks named by the digest of their contents. A named
//! manifest lists the chunks. This crate does not depend on any file system format.
//!
//! Objects below a prefix of a store:
//! - `chunks/ab/abcd…`: a zstd frame, named by the SHA-256 of its contents,
//! - `manifests/DIGEST`: the chunks of an image ([`manifest`]), named by the SHA-256 of the object,
//! - `bundles/DIGEST`: the metadata of an image ([`crate::bundle`]), named by the digest of its header,
//! - `names/NAME`: the manifest of that name,
//! - `marks/KIND-…`: the publishers and sweeps in progress.
//!
//! Invariant: the manifest of a name exists, with every chunk and the bundle that it lists. Publishers put these before
//! the manifest and the manifest before the name. [`sweep()`] runs only while no publication is in progress; marks ensure this.

pub mod manifest;
pub mod record;

mod ask;
mod checked;
mod cut;
mod error;
mod layout;
mod mark;
mod open;
mod published;
mod publisher;
mod request;
mod sweep;

pub use crate::digest::Digest;
pub(crate) use crate::{digest, frame};
pub use error::Error;
pub use layout::check_name;
pub use manifest::{Facts, Manifest};
pub use mark::Patience;
pub use open::{find, is_manifest, open};
pub use published::Published;
pub use publisher::{
    CHUNK_BYTES_DEFAULT, NoPublishReports, Observer, Options, Stage, UploadReport, publish,
};
pub use sweep::{SweepOptions, Swept, sweep};
