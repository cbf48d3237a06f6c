//! Bulk data: large writes as objects of their own, and references to their blocks in the database.
//! `docs/design/volumes.md` specifies the protocol.

mod compact;
mod kept;
mod objects;
mod pending;
mod reference;
mod send;

pub(crate) use objects::BulkObjects;
pub(crate) use pending::{DirtyBlocks, Due, GROUP_REGIONS, Pending, REGION_BYTES};
pub(crate) use reference::{BlockValue, ObjectName, Reference, checksum};
pub(crate) use send::BulkWriter;

/// Names below a volume's prefix: of all bulk objects, and of lists of objects to remove.
pub(crate) const OBJECTS: &str = "bulk";
pub(crate) const GARBAGE: &str = "garbage";
/// Maximum size of a bulk object.
pub(crate) const OBJECT_BYTES_MAX: u64 = 16 << 20;
