//! Verification of qcow2 images before they are opened. Source: QEMU's docs/interop/qcow2.rst.
//!
//! The crate `imago` reads and writes qcow2, and trusts the reference counts: it allocates clusters whose count is 0,
//! even the cluster of the header. [`verify`] proves that no such cluster is in use:
//!
//! - Each cluster of the header, the tables, the snapshots, the bitmaps and the data has a count of at least the number
//!   of its references.
//! - No metadata cluster has a second use.
//! - A cluster that an active table marks as exclusive (`COPIED`) has the count 1, because it is written in place.
//! - All offsets are aligned and inside the file.
//!
//! Counts that are too high only waste space and are accepted, as by `qemu-img check`.
//!
//! `header` and `clusters` have no I/O. Memory use depends on the clusters with a non-zero count: 136 bytes for each
//! page of 256 clusters, and a few words for each table and each shared cluster.

mod clusters;
mod damage;
mod header;
mod verify;

pub(crate) use damage::{Damage, Feature, Qcow2Error};
pub(crate) use header::Qcow2Header;
pub(crate) use verify::verify;

#[cfg(test)]
mod tests;
