//! Layers between a disk image and its file system: LVM2 volumes ([`lvm`]), md arrays ([`md`]), LUKS volumes ([`luks`]),
//! and disk containers ([`containers`]). Each becomes a [`disk::BlockDevice`] over its members, without a kernel.
//!
//! [`resolve`] finds the file system behind any combination of them. Parsers are pure functions of bytes. They verify
//! checksums, bounds and order, and allocate nothing by a claimed size. Everything that a header names is untrusted.
//!
//! Layers write only where a write to the layer is a write to one place of its members: LVM linear and striped, md
//! linear and RAID 0, LUKS. All others are read-only.
#![forbid(unsafe_code)]

pub mod containers;
mod error;
pub mod luks;
pub mod lvm;
mod mapped;
pub mod md;
mod member;
mod options;
mod raw;
mod stack;

pub use error::LayerError;
pub use mapped::{MappedDevice, Piece, Target};
pub use member::Member;
pub use options::{Ask, LayerOptions, Passphrase};
pub use stack::{Access, Layer, Stack, has_layer, resolve, unpack};

/// Result of this crate.
pub type Result<T> = std::result::Result<T, LayerError>;
