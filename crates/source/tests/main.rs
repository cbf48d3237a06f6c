//! Directories and tar archives as sources.

mod common;
mod directory;
mod oci;
mod tar;
