//! Directories and tar archives as sources.

mod combine;
mod common;
mod directory;
mod oci;
mod tar;
