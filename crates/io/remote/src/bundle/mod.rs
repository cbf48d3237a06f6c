//! Metadata bundles: the metadata of an image in one object, in the order of use. A reader of a remote image fetches it
//! with one request instead of one for each place of the image that contains metadata.
//!
//! A bundle consists of
//! - a header ([`format::RawHeader`]) with its own checksum and the digest of the tables,
//! - the identity of the image ([`Identity`]), as JSON,
//! - the frame table ([`format::RawFrame`]): length and digest of each frame,
//! - the extent table: the units of the image in the bundle, in the order of the stream ([`index`]),
//! - the frames, each a zstd frame with the next 256 KiB of the stream.
//!
//! The stream is the concatenation of all units that are not zeros. [`Writer`], [`Head`] and [`Tables`] do no I/O.
//!
//! Invariant: every byte that a reader gets was verified. The header's checksum covers the digest of the tables, which
//! contain the digest of each frame. The checksum of the header therefore identifies a bundle ([`Head::digest`]).

mod encode;
mod error;
pub mod format;
pub(crate) mod identity;
pub mod index;

#[cfg(feature = "objects")]
mod make;

pub use encode::{Encoded, Writer};
pub use error::BundleError;
#[cfg(feature = "objects")]
pub(crate) use error::warn;
pub use format::{Head, Tables};
pub use identity::Identity;
pub use index::{ExtentSource, Index};

#[cfg(feature = "objects")]
pub use make::{MakeError, Plan, make};

#[cfg(test)]
mod tests;
