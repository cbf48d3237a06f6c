//! The hash of parent pointers.

use crate::format::geometry::Geometry;
use crate::format::hash::{folded_hash, name_hash};

/// Returns the hash of a parent pointer: the directory hash of the name, combined with the directory's inode number.
pub(super) fn hash(geometry: &Geometry, name: &[u8], dir: u64) -> u32 {
    let name = if geometry.features.ascii_ci() { folded_hash(name) } else { name_hash(name) };
    name ^ (dir >> 32) as u32 ^ dir as u32
}
