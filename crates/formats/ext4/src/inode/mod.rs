//! Inodes: lookup, locks, handles, attributes, flags, projects and inline data.

mod attributes;
pub(crate) mod encryption;
pub(crate) mod file_attributes;
mod handle;
pub(crate) mod inline;
pub(crate) mod project;

pub(crate) use handle::{Handle, attributes, load, load_unlinked};
